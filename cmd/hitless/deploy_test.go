package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/internal/shard"
)

func manifest(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(err)
	}
}

// The arguments of the scheduled run parse; only the service account of a pod is missing here.
func TestScheduledRunIsValidCall(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("HITLESS_CACHE", t.TempDir())
	var job batchv1.CronJob
	manifest(t, "soak/cronjob.yaml", &job)
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	args := pod.Containers[0].Args
	var out bytes.Buffer
	if code := execute(args, &out, &out); code != exitUsage || !strings.Contains(out.String(), "finding the cluster of this pod") {
		t.Errorf("hitless %s: exit code %d\n%s", strings.Join(args, " "), code, out.String())
	}
	out.Reset()
	if code := execute(append(args, "--set=rolouts=4"), &out, &out); code != exitUsage || !strings.Contains(out.String(), "rolouts") {
		t.Errorf("an unknown key was accepted: %d\n%s", code, out.String())
	}
	for _, word := range []string{"--in-cluster", "--openmetrics", "--out=/data/$(POD_NAME)"} {
		if !strings.Contains(strings.Join(args, " "), word) {
			t.Errorf("the run lacks %s", word)
		}
	}
	if job.Spec.JobTemplate.Spec.BackoffLimit == nil || *job.Spec.JobTemplate.Spec.BackoffLimit != 0 {
		t.Error("a failed run is repeated")
	}
}

// The report server listens on loopback only: a port-forward arrives inside its pod.
func TestReportsPageIsValidCall(t *testing.T) {
	var page appsv1.Deployment
	manifest(t, "soak/reports.yaml", &page)
	cmd, rest, err := root().Find(page.Spec.Template.Spec.Containers[0].Args)
	if err != nil || cmd.Name() != "serve" || len(rest) != 1 || rest[0] != "/data" {
		t.Fatalf("%v: %s %q", err, cmd.Name(), rest)
	}
	if listen := cmd.Flag("listen").DefValue; !strings.HasPrefix(listen, "127.0.0.1:7788") {
		t.Errorf("it listens on %s", listen)
	}
}

// The arguments of a shard parse, with an index of the Job; those of the merge name as many folders as there are shards.
func TestJobsOfShardsAreValidCalls(t *testing.T) {
	var shards, merge batchv1.Job
	manifest(t, "shards/shards.yaml", &shards)
	manifest(t, "shards/merge.yaml", &merge)
	args := strings.Fields(strings.ReplaceAll(strings.Join(shards.Spec.Template.Spec.Containers[0].Args, " "), "$(JOB_COMPLETION_INDEX)", "0"))
	cmd, rest, err := root().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.Name() != "compare" {
		t.Fatalf("%q: %v", args, err)
	}
	part, err := shard.Parse(cmd.Flag("shard").Value.String())
	if err != nil || part.Of != int(*shards.Spec.Completions) || part.Part != 1 {
		t.Errorf("the first of %d shards is %s: %v", *shards.Spec.Completions, part, err)
	}
	cmd, rest, err = root().Find(merge.Spec.Template.Spec.Containers[0].Args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.Name() != "merge" || cmd.Flags().NArg() != int(*shards.Spec.Completions) {
		t.Errorf("%q: %v", rest, err)
	}
}

// The container of a shard gets what debian:12 lacks before the run: a lab's packages, then certificates for --programs released. The run
// does not begin when that fails.
func TestContainersOfShardsInstallWhatTheImageLacks(t *testing.T) {
	var shards batchv1.Job
	manifest(t, "shards/shards.yaml", &shards)
	words := shards.Spec.Template.Spec.Containers[0].Command
	for name, c := range map[string]struct{ certificates, failing, want string }{
		"debian:12":           {"", "", "hitless doctor --install|apt-get install -y -q --no-install-recommends ca-certificates|hitless compare rollout|"},
		"with certificates":   {"ca-certificates.crt", "", "hitless doctor --install|hitless compare rollout|"},
		"without an archive":  {"", "apt-get", "hitless doctor --install|apt-get install -y -q --no-install-recommends ca-certificates|"},
		"that lacks packages": {"", "hitless", "hitless doctor --install|"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log, files := filepath.Join(dir, "log"), map[string]string{}
			for _, program := range []string{"hitless", "apt-get"} {
				files[program] = "#!/bin/sh\nprintf '%s|' \"" + program + " $*\" >>" + log + "\n[ " + program + " != '" + c.failing + "' ]\n"
			}
			if c.certificates != "" {
				files[c.certificates] = ""
			}
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			script := strings.NewReplacer("/opt/hitless/", dir+"/", "/etc/ssl/certs/", dir+"/").Replace(words[2])
			cmd := exec.Command("sh", words[1], script, "sh", "compare", "rollout")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			if err := cmd.Run(); (err != nil) != (c.failing != "") {
				t.Errorf("it ended with %v", err)
			}
			if done, err := os.ReadFile(log); err != nil || string(done) != c.want {
				t.Errorf("it did %q (%v), want %q", done, err, c.want)
			}
		})
	}
}

package main

import (
	"bytes"
	"os"
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

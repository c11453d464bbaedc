package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

func manifest(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/soak/" + name)
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
	manifest(t, "cronjob.yaml", &job)
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
	manifest(t, "reports.yaml", &page)
	cmd, rest, err := root().Find(page.Spec.Template.Spec.Containers[0].Args)
	if err != nil || cmd.Name() != "serve" || len(rest) != 1 || rest[0] != "/data" {
		t.Fatalf("%v: %s %q", err, cmd.Name(), rest)
	}
	if listen := cmd.Flag("listen").DefValue; !strings.HasPrefix(listen, "127.0.0.1:7788") {
		t.Errorf("it listens on %s", listen)
	}
}

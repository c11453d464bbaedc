//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
)

func TestConformanceListsItsSpecs(t *testing.T) {
	t.Chdir(t.TempDir())
	code, out := call(t, "conformance", "--dry-run")
	if code != exitPass || !strings.Contains(out, "rollout-local new") || !strings.Contains(out, "in all shards") {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out = call(t, "conformance", "--dry-run", "--label-filter", "core && drain", "--shard", "1/2")
	if code != exitPass || strings.Contains(out, "rollout-local new") {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out = call(t, "conformance", "--dry-run", "--kubeconfig", "cluster.yaml", "--focus", "restart-term")
	if code != exitPass || !strings.Contains(out, "skipped: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("a dry run wrote %v (%v)", left, err)
	}
}

// Wrong calls have exit code 2 and leave nothing behind.
func TestConformanceRefusesWrongCalls(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{
		{"--label-filter", "smok"}, {"--label-filter", "core &&"}, {"--focus", "resart"}, {"--focus", "("}, {"--shard", "4/3"}, {"--shard", ""},
		{"--seed", "0"}, {"--subject", "kube-proxy"}, {"--subject", "exec:none.yaml"}, {"--controlplane", "cube"}, {"extra"},
		{"--kubeconfig", "cluster.yaml", "--subject", "bundled"}, {"--context", "staging"}, {"--target", "nodeport"}, {"--out", ""}, {"--kubeconfig", "none.yaml"},
	} {
		code, out := call(t, append([]string{"conformance"}, args...)...)
		if code != exitUsage || out == "" {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("a wrong call wrote %v (%v)", left, err)
	}
}

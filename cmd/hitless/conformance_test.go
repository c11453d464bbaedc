//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hitless/hitless/suites/conformance"
)

func TestConformanceListsItsSpecs(t *testing.T) {
	t.Chdir(t.TempDir())
	code, out := call(t, "conformance", "--dry-run")
	if code != exitPass || !strings.Contains(out, "rollout-local new") || !strings.Contains(out, "in all shards") {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out = call(t, "conformance", "--dry-run", "--focus", "quiet new")
	if code != exitPass || !strings.Contains(out, "\n1 spec, 0 of them skipped, in 1 run; ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out = call(t, "conformance", "--dry-run", "--label-filter", "core && drain", "--shard", "1/2")
	if code != exitPass || strings.Contains(out, "rollout-local new") {
		t.Errorf("exit code %d: %s", code, out)
	}
	cluster := kubeconfigOf(t, "c")
	code, out = call(t, "conformance", "--dry-run", "--kubeconfig", filepath.Join(t.TempDir(), "none"), "--focus", "restart-term")
	if code != exitUsage || !strings.Contains(out, "reading the kubeconfig") {
		t.Errorf("without the file: exit code %d: %s", code, out)
	}
	code, out = call(t, "conformance", "--dry-run", "--kubeconfig", cluster, "--focus", "restart-term")
	if code != exitPass || !strings.Contains(out, "skipped: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("a dry run wrote %v (%v)", left, err)
	}
}

// A shard without specs is a success, and its report takes the place of an older one.
func TestAShardWithoutSpecsWritesItsReport(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile(conformance.File, []byte("of an older call\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := call(t, "conformance", "--focus", "quiet new", "--shard", "2/2", "--out", ".")
	if code != exitPass {
		t.Fatalf("exit code %d: %s", code, out)
	}
	r, err := conformance.Read(t.Context(), ".", nil)
	if err != nil || len(r.Specs) != 0 || r.Selected.Specs != 1 || r.Selected.Shard != "2/2" || len(r.Program) != 64 {
		t.Errorf("%+v, %v", r, err)
	}
}

// kubeconfigOf writes the kubeconfig of a cluster that does not answer, with a context, and returns its file.
func kubeconfigOf(t *testing.T, context string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	config.Contexts[context], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, context
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// The command of a report names the context of a live cluster, and its subject is not one of the lab.
func TestTheCommandOfALiveClusterNamesTheContext(t *testing.T) {
	t.Chdir(t.TempDir())
	code, out := call(t, "conformance", "--kubeconfig", kubeconfigOf(t, "it's staging"), "--context", "it's staging", "--focus", "quiet new", "--shard", "2/2", "--out", ".")
	if code != exitPass {
		t.Fatalf("exit code %d: %s", code, out)
	}
	r, err := conformance.Read(t.Context(), ".", nil)
	if err != nil || !strings.Contains(r.Command, `--context 'it'\''s staging'`) || r.Implementation.Subject != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Wrong calls have exit code 2 and leave nothing behind.
func TestConformanceRefusesWrongCalls(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{
		{"--label-filter", "smok"}, {"--label-filter", "core &&"}, {"--focus", "resart"}, {"--focus", "("}, {"--shard", "4/3"}, {"--shard", ""},
		{"--seed", "0"}, {"--subject", "kube-proxy"}, {"--subject", "exec:none.yaml"}, {"--controlplane", "cube"}, {"extra"},
		{"--kubeconfig", "cluster.yaml", "--subject", "bundled"}, {"--context", "staging"}, {"--target", "nodePort"}, {"--out", ""}, {"--kubeconfig", "none.yaml"},
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

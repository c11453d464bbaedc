package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A pod's program starts before Kubernetes' packages do: they would be most of what a rollout costs in virtual time.
func TestBackendStartsEarly(t *testing.T) {
	const inner = "HITLESS_TEST_EARLY"
	if os.Getenv(inner) != "" {
		t.Fatal("the word backend did not make this program a backend")
	}
	program, err := os.Executable() // this test, which is linked as hitless is
	if err != nil {
		t.Fatal(err)
	}
	var out, trace bytes.Buffer
	cmd := exec.Command(program, "backend", "--help")
	cmd.Env = append(os.Environ(), inner+"=1", "GODEBUG=inittrace=1")
	cmd.Stdout, cmd.Stderr = &out, &trace
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "netexec") {
		t.Fatalf("hitless backend --help: %v\n%s", err, out.String())
	}
	if !strings.Contains(trace.String(), "init net/http") {
		t.Fatalf("the runtime does not tell what it initialises:\n%s", trace.String())
	}
	for _, late := range []string{"init k8s.io/client-go/kubernetes/scheme", "init sigs.k8s.io/controller-runtime/pkg/client"} {
		if strings.Contains(trace.String(), late) {
			t.Errorf("a backend waits for %q", late)
		}
	}
}

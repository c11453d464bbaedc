package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/subject/failing"
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
	startsEarly(t, "a backend", trace.String())
}

// startsEarly checks the trace of a program that must not wait for the packages of Kubernetes.
func startsEarly(t *testing.T, program, trace string) {
	t.Helper()
	for _, late := range []string{"init k8s.io/client-go/kubernetes/scheme", "init sigs.k8s.io/controller-runtime/pkg/client"} {
		if strings.Contains(trace, late) {
			t.Errorf("%s waits for %q", program, late)
		}
	}
}

// A program that must fail ends before Kubernetes' packages come to life: a proxy may call it often.
func TestFailingProgramEndsEarly(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "current"), 0o755); err != nil {
		t.Fatal(err)
	}
	var trace bytes.Buffer
	cmd := exec.Command(program, failing.Word, filepath.Join(dir, "current", "nft"), "-f", "-")
	cmd.Env, cmd.Stderr = append(os.Environ(), "GODEBUG=inittrace=1"), &trace
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != failing.Status || !strings.Contains(trace.String(), "nft: hitless makes this program fail") {
		t.Fatalf("%v\n%s", err, trace.String())
	}
	if calls, err := failing.Calls(dir); err != nil || !slices.Equal(calls, []string{"nft -f -\n"}) {
		t.Errorf("the log of calls: %q, %v", calls, err)
	}
	startsEarly(t, "a failing program", trace.String())
}

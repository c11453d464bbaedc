//go:build lab

package conformance

import (
	"os/exec"
	"testing"

	"github.com/hitless/hitless/suites"
)

// examined is the report of the program about a subject, of which one spec fails.
func examined(t *testing.T, subject, focus string) *Report {
	t.Helper()
	program, err := suites.Program()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = suites.RemoveProgram() })
	dir := t.TempDir()
	cmd := exec.Command(program, "conformance", "--subject", subject, "--out", dir, "--focus", "^conformance a Service proxy ("+focus+"):")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Fatalf("exit code %d, want 1: %v: %s", code, err, out)
	}
	return readReport(t, dir)
}

// The program examines the bundled proxier in a lab: it keeps its promises, and breaks the one that docs/proxier.md explains.
func TestTheProgramExaminesTheBundledProxier(t *testing.T) {
	r := examined(t, "bundled", "quiet new|ipv4 cluster IP|ipv4 policy Local, from a pod|cost of a change, .*")
	for name, want := range map[string]State{"quiet new": Passed, "ipv4 cluster IP": Passed, "ipv4 policy Local, from a pod": Failed,
		"cost of a change, time": Passed, "cost of a change, CPU": Passed} {
		if got := stateOfSpec(t, r, name); got.State != want || len(got.HistorySha256) != 64 {
			t.Errorf("%s is %s, want %s: %+v", name, got.State, want, got)
		}
	}
	if r.Implementation.Name != "bundled" || r.Program == "" || r.Site.ControlPlane != "replay" {
		t.Errorf("the report is about %+v at %+v with %q", r.Implementation, r.Site, r.Program)
	}
}

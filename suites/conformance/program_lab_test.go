//go:build lab

package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/suites"
	"github.com/hitless/hitless/suites/faulty"
)

// TestMain removes the program after the last test that runs it.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := suites.RemoveProgram(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "removing the program:", err)
		code = 1
	}
	os.Exit(code)
}

// examined is the report of the program about a subject, with each spec of the selection. The program must end with this exit code.
func examined(t *testing.T, exit int, subject string, selection ...string) *Report {
	t.Helper()
	program, err := suites.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(program, append([]string{"conformance", "--subject", subject, "--out", dir}, selection...)...)
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exit {
		t.Fatalf("exit code %d, want %d: %v: %s", code, exit, err, out)
	}
	r := readReport(t, dir)
	selected, err := Selection{Labels: r.Selected.Labels, Focus: r.Selected.Focus, Skip: r.Selected.Skip}.filter()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, s := range Catalog() {
		if selected(s) {
			want = append(want, s.Name)
		}
	}
	for _, s := range r.Specs {
		got = append(got, s.Name)
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Fatalf("the report has the specs %q, want %q", got, want)
	}
	return r
}

// focus selects the specs whose names match a regular expression.
func focus(names string) string { return "--focus=^conformance a Service proxy (" + names + "):" }

// The program examines the bundled proxier in a lab: it keeps its promises, and breaks those that docs/proxier.md explains.
func TestTheProgramExaminesTheBundledProxier(t *testing.T) {
	t.Parallel()
	r := examined(t, 1, "bundled", focus("quiet new|ipv4 .*"))
	expectFailures(t, r, func(s Spec) bool { return s.Deviates })
	if r.Implementation.Name != "bundled" || r.Program == "" || r.Site.ControlPlane != "replay" {
		t.Errorf("the report is about %+v at %+v with %q", r.Implementation, r.Site, r.Program)
	}
}

// kube-proxy validates the routing specs: in mode nftables it keeps all promises, and in mode ipvs it breaks those that its source explains.
func TestTheProgramExaminesKubeProxy(t *testing.T) {
	for mode, exit := range map[string]int{"nftables": 0, "ipvs": 1} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			expectFailures(t, examined(t, exit, "kube-proxy@v1.37.1/"+mode, focus("ipv4 .*")), func(s Spec) bool {
				return mode == "ipvs" && slices.Contains(brokenByIPVS(), s.check)
			})
		})
	}
}

// brokenByIPVS are the names of the checks that kube-proxy fails in mode ipvs.
func brokenByIPVS() (names []string) {
	for _, q := range routing.Cases {
		if q.IPVS != "" && !q.Own {
			names = append(names, q.Name)
		}
	}
	return names
}

// The red twin: a proxier that drops one of 300 new connections fails the spec that the bundled one passes.
func TestTheProgramFindsAFaultyProxier(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, file := filepath.Join(dir, "faulty"), filepath.Join(dir, "faulty.yaml")
	drops := "*:rule:30s:1h:in ip daddr 203.0.113.10 tcp dport 80 tcp flags & (syn|ack) == syn numgen inc mod 300 == 7 drop"
	if err := errors.Join(suites.Build(faulty.Package, program), faulty.Write(file, "faulty", program, []string{drops}, nil)); err != nil {
		t.Fatal(err)
	}
	expectFailures(t, examined(t, 1, "exec:"+file, focus("quiet new")), func(Spec) bool { return true })
}

// expectFailures requires that exactly these specs of a report failed. All others passed, and each has the hash of its run.
func expectFailures(t *testing.T, r *Report, fails func(Spec) bool) {
	t.Helper()
	all := Catalog()
	for _, got := range r.Specs {
		i := slices.IndexFunc(all, func(s Spec) bool { return s.Name == got.Name })
		want := Passed
		if fails(all[i]) {
			want = Failed
		}
		if got.State != want || len(got.HistorySha256) != 64 {
			t.Errorf("%s is %s, want %s: %+v", got.Name, got.State, want, got)
		}
	}
}

//go:build linux

package subject

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/subject/failing"
)

// Each kube-proxy can be blocked. What writes its tables itself, or finds its programs elsewhere, is refused with what to do.
func TestWhatCanBeBlocked(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want string // of the error; empty for none
	}{
		"kube-proxy":          {Spec{Name: "kube-proxy", Version: "v1.37.1", Mode: "nftables"}, ""},
		"a file with a mode":  {FromExec(Exec{Name: "patched", Mode: "iptables"}), ""},
		"bundled":             {Bundled, "cannot do that with bundled: it writes its rules over netlink"},
		"Cilium":              {DataPlanes()[0], `its mode is "cilium-maps"`},
		"a file without mode": {FromExec(Exec{Name: "own"}), `its mode is "", and hitless knows the programs of the modes userspace, iptables`},
		"a PATH of its own":   {FromExec(Exec{Name: "own", Mode: "nftables", Env: []string{"PATH=/opt/subject"}}), "leave PATH out"},
	} {
		err := c.spec.CheckBlock()
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, new(*LackError)) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// call runs a program as a proxy does that found it before, and as one that looks for it each time.
func call(t *testing.T, name, found string) (outputs []string) {
	t.Helper()
	for _, program := range []string{found, name} {
		cmd := exec.Command(program, "-N", "KUBE-SERVICES")
		out, _ := cmd.CombinedOutput() // the output tells how it ended
		outputs = append(outputs, string(out)+cmd.ProcessState.String())
	}
	return outputs
}

// works is what the programs of testPrograms say twice.
var works = []string{"real iptables -N KUBE-SERVICES\nexit status 0", "real iptables -N KUBE-SERVICES\nexit status 0"}

// testPrograms makes sets of two programs in a directory below dir, with hitless at a path, and has the working one first in the PATH.
func testPrograms(t *testing.T, dir, hitless string) (sets programSets) {
	t.Helper()
	real := t.TempDir()
	for _, name := range []string{"iptables", "iptables-save"} {
		if err := os.WriteFile(filepath.Join(real, name), []byte("#!/bin/sh\necho real $(basename $0) $*\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", real+":/usr/bin:/bin")
	sets = programSets(filepath.Join(dir, "programs"))
	for range 2 { // a second lab in the same place
		if err := sets.make(hitless); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", sets.path()+":"+os.Getenv("PATH"))
	return sets
}

// shortDir is a directory whose path a script can begin with.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func self(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func (d programSets) mustChange(t *testing.T, to string) {
	t.Helper()
	if err := d.change(to); err != nil {
		t.Fatal(err)
	}
}

// A proxy that has found its programs keeps the paths, and gets those that work or fail now. Programs that only read go on.
func TestProgramsFailAndWorkAgain(t *testing.T) {
	sets := testPrograms(t, shortDir(t), self(t))
	found, err := exec.LookPath("iptables")
	if err != nil || !strings.HasPrefix(found, sets.path()) {
		t.Fatalf("the proxy finds %q, %v", found, err)
	}
	if got := call(t, "iptables", found); !slices.Equal(got, works) {
		t.Errorf("at first: %q", got)
	}
	sets.mustChange(t, failingSet)
	for _, got := range call(t, "iptables", found) {
		if !strings.HasPrefix(got, "iptables: hitless makes this program fail") || !strings.HasSuffix(got, "exit status 4") {
			t.Errorf("blocked: %q", got)
		}
	}
	if got := call(t, "iptables-save", "iptables-save")[0]; got != "real iptables-save -N KUBE-SERVICES\nexit status 0" {
		t.Errorf("a program that only reads: %q", got)
	}
	if err := sets.change(failingSet); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second block gave %v", err)
	}
	sets.mustChange(t, workingSet)
	if got := call(t, "iptables", found); !slices.Equal(got, works) {
		t.Errorf("at last: %q", got)
	}
}

// Each failed call is told once, until it is forgotten.
func TestFailedCallsAreTold(t *testing.T) {
	sets := testPrograms(t, shortDir(t), self(t))
	sets.mustChange(t, failingSet)
	call(t, "iptables", filepath.Join(sets.path(), "iptables"))
	const line = "iptables -N KUBE-SERVICES\n"
	if calls, err := failing.Calls(string(sets)); err != nil || !slices.Equal(calls, []string{line, line}) {
		t.Errorf("the failed calls: %q, %v", calls, err)
	}
	for range 2 { // there may be none to forget
		if err := failing.Forget(string(sets)); err != nil {
			t.Error(err)
		}
	}
	if calls, err := failing.Calls(string(sets)); err != nil || len(calls) != 0 {
		t.Errorf("the failed calls are told again: %q, %v", calls, err)
	}
	if failing.Status == 1 {
		t.Error("iptables and ipset answer with 1")
	}
}

// The path of hitless may be long and have blanks. A directory with such a path is refused, because its scripts would not start.
func TestLongPathsOfHitless(t *testing.T) {
	far := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 15))
	if err := os.Mkdir(far, 0o755); err != nil {
		t.Fatal(err)
	}
	hitless := filepath.Join(far, "hitless")
	if err := os.Symlink(self(t), hitless); err != nil {
		t.Fatal(err)
	}
	sets := testPrograms(t, shortDir(t), hitless)
	sets.mustChange(t, failingSet)
	if got := call(t, "iptables", "iptables")[0]; !strings.HasPrefix(got, "iptables: hitless makes this program fail") {
		t.Errorf("blocked: %q", got)
	}
	for _, dir := range []string{far, "/run/a blank"} {
		if err := programSets(filepath.Join(dir, "programs")).makeFailing(hitless); err == nil || !strings.Contains(err.Error(), "give a shorter directory without blanks") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

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
		err := c.spec.CheckTools()
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, new(*LackError)) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// call runs a tool as a proxy does that found it before, and one that looks for it each time.
func call(t *testing.T, name, found string) (outputs []string) {
	t.Helper()
	for _, program := range []string{found, name} {
		cmd := exec.Command(program, "-N", "KUBE-SERVICES")
		out, _ := cmd.CombinedOutput() // the output tells how it ended
		outputs = append(outputs, string(out)+cmd.ProcessState.String())
	}
	return outputs
}

// A proxy that has found its tools keeps the paths, and gets the tools that work or fail now. Each failed call is noted once.
func TestToolsFailAndWorkAgain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"iptables", "iptables-save"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho real $(basename $0) $*\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	box := toolbox(filepath.Join(t.TempDir(), "tools"))
	for range 2 { // a second lab in the same place
		if err := box.make(self); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", box.path()+":"+os.Getenv("PATH"))
	found, err := exec.LookPath("iptables")
	if err != nil || !strings.HasPrefix(found, box.path()) {
		t.Fatalf("the proxy finds %q, %v", found, err)
	}
	works := []string{"real iptables -N KUBE-SERVICES\nexit status 0", "real iptables -N KUBE-SERVICES\nexit status 0"}
	if got := call(t, "iptables", found); !slices.Equal(got, works) {
		t.Errorf("at first: %q", got)
	}
	if err := box.change(failingTools); err != nil {
		t.Fatal(err)
	}
	for _, got := range call(t, "iptables", found) {
		if !strings.HasPrefix(got, "iptables: hitless lets this tool fail") || !strings.HasSuffix(got, "exit status 4") {
			t.Errorf("blocked: %q", got)
		}
	}
	if got := call(t, "iptables-save", "iptables-save")[0]; got != "real iptables-save -N KUBE-SERVICES\nexit status 0" {
		t.Errorf("a tool that only reads: %q", got)
	}
	if err := box.change(failingTools); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second block gave %v", err)
	}
	if err := box.change(workingTools); err != nil {
		t.Fatal(err)
	}
	if got := call(t, "iptables", found); !slices.Equal(got, works) {
		t.Errorf("at last: %q", got)
	}
	if calls, err := failing.Calls(string(box)); err != nil || !slices.Equal(calls, []string{"iptables -N KUBE-SERVICES\n", "iptables -N KUBE-SERVICES\n"}) {
		t.Errorf("the failed calls: %q, %v", calls, err)
	}
	if calls, err := failing.Calls(string(box)); err != nil || len(calls) != 0 {
		t.Errorf("the failed calls are told again: %q, %v", calls, err)
	}
	if failing.Status == 1 {
		t.Error("iptables and ipset answer with 1")
	}
}

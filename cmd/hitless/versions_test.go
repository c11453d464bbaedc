//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/reports/compare"
)

// `make versions` fails for a version that only delays connections, in one scenario of several. hack/versions.sh calls this program with
// recorded runs in the place of new ones. Red twin: versions without loss pass.
func TestVersionsThatOnlyDelayFail(t *testing.T) {
	same, delays := comparison(t, gateClasses, "old", "also-old"), comparison(t, gateClasses, "old", "delays")
	c, err := compare.Read(t.Context(), filepath.Join(delays, compare.File))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Subjects[1].Runs {
		if r.Dropped != 0 || r.Delayed == 0 {
			t.Fatalf("the new version drops %d and delays %d", r.Dropped, r.Delayed)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kill, want := range map[string]int{same: 0, delays: 1} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		stub := testfiles.Write(t, filepath.Join(dir, "bin"), "hitless", fmt.Appendf(nil,
			"#!/bin/sh\ncase $* in *--out\\ out/kill) runs=%s;; *) runs=%s;; esac\n%s=1 exec %s gate $runs\n", kill, same, asProgram, self))
		if err := os.Chmod(stub, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("../../hack/versions.sh")
		cmd.Env = append(os.Environ(), "HITLESS="+dir, "OUT=out", "OLD=v1.36.1", "NEW=v1.37.1", "MODE=ipvs", "RUNS=2")
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, out)
		}
		if code := cmd.ProcessState.ExitCode(); code != want || want != 0 && !strings.Contains(string(out), "kill: kube-proxy v1.37.1 after v1.36.1 in mode ipvs ended with exit code 1") {
			t.Errorf("exit code %d, want %d:\n%s", code, want, out)
		}
	}
}

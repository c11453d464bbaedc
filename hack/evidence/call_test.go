package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/cache"
)

// write writes a file below the current folder.
func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

// Flags that a merge would not read are refused, as are words that are none.
func TestWrongUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		ok   bool
	}{
		"nothing":          {nil, true},
		"a plan":           {[]string{"-plan", "-steps", "kernels", "-shard", "1/2"}, true},
		"a merge":          {[]string{"-merge", "a,b"}, true},
		"a merged plan":    {[]string{"-merge", "a,b", "-plan"}, false},
		"merged steps":     {[]string{"-merge", "a,b", "-steps", "kernels"}, false},
		"a merged shard":   {[]string{"-shard", "1/2", "-merge", "a,b"}, false},
		"a word":           {[]string{"kernels"}, false},
		"an unknown step":  {[]string{"-steps", "none"}, false},
		"an unknown shard": {[]string{"-shard", "3/2"}, false},
	} {
		if _, err := parse(c.args); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code := run([]string{"-merge", "a", "-plan"}, &bytes.Buffer{}); code != 2 {
		t.Errorf("exit code %d of wrong usage", code)
	}
}

// A call that was interrupted after its last script has not told what changed: the next one does.
func TestUntoldChangesAreTold(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, program, "a program", 0o755)
	for _, dir := range []string{resultsDir, beforeDir} {
		write(t, filepath.Join(dir, "a.lanes.txt"), "a drawing has no rows", 0o600)
	}
	sum, err := cache.Sha256(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	one := step{name: "a", patterns: []string{"a.lanes.txt"}}
	write(t, one.mark(sum), "", 0o600)
	call := func(o options) string {
		t.Helper()
		var out bytes.Buffer
		if err := o.evidence(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const told = "Changes since the last evidence"
	if out := call(options{steps: []step{one}, plan: true}); strings.Contains(out, told) {
		t.Errorf("a plan tells changes:\n%s", out)
	}
	if out := call(options{steps: []step{one}}); !strings.Contains(out, told) {
		t.Errorf("the changes are not told:\n%s", out)
	}
	if _, err := os.Stat(beforeDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the results of before are still there: %v", err)
	}
	if out := call(options{steps: []step{one}}); strings.Contains(out, told) {
		t.Errorf("the changes are told twice:\n%s", out)
	}
}

// An interrupt ends the scripts, and the exit code says so.
func TestAnInterruptHasItsExitCode(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, program, "a program", 0o755)
	write(t, filepath.Join(resultsDir, "a.lanes.txt"), "a drawing has no rows", 0o600)
	for _, s := range steps { // the script of a step interrupts the command that runs it
		write(t, s.script, "#!/bin/sh\nkill -INT $PPID\nexec sleep 600\n", 0o755)
	}
	var out bytes.Buffer
	if code := run([]string{"-steps", "kernels,upgrades,minors"}, &out); code != 130 || strings.Contains(out.String(), "ended;") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
	if _, err := os.Stat(beforeDir); err != nil {
		t.Errorf("the results of before are lost: %v", err)
	}
}

// The CPUs are those on which this process may run, and each script has its own.
func TestScriptsGetTheCPUsOfThisProcess(t *testing.T) {
	cpus, err := ownCPUs()
	if err != nil || len(cpus) == 0 {
		t.Fatalf("%v, %v", cpus, err)
	}
	for _, n := range cpus {
		if err := exec.Command("taskset", "-c", halves([]int{n})[0], "true").Run(); err != nil {
			t.Errorf("CPU %d: %v", n, err)
		}
	}
	for want, cpus := range map[string][]int{"3": {3}, "1|6": {1, 6}, "2|5,7": {2, 5, 7}, "0,1|2,3": {0, 1, 2, 3}} {
		if got := strings.Join(halves(cpus), "|"); got != want {
			t.Errorf("%v: %s, want %s", cpus, got, want)
		}
	}
}

// A thread that is bound to the last CPU has that one alone. Where there is only one CPU this cannot fail.
func TestTheCPUsOfARestrictedProcess(t *testing.T) {
	all, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	done := make(chan []int)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the goroutine
		var one unix.CPUSet
		one.Set(last)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
		cpus, err := ownCPUs()
		if err != nil {
			t.Error(err)
		}
		done <- cpus
	}()
	if got := <-done; len(got) != 1 || got[0] != last {
		t.Errorf("the CPUs are %v, want %d", got, last)
	}
}

// Scripts execute one go, which is written before they begin: the one that GO names, under a lock.
func TestScriptsShareOneGo(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "mine", "#!/bin/sh\necho my go \"$@\"\n", 0o755)
	write(t, "script", "#!/bin/sh\n$GO run ./hack/docs\n", 0o755)
	write(t, filepath.Join(stateDir, "kept"), "", 0o600)
	mine, err := filepath.Abs("mine")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GO", mine)
	tool, err := lockedGo()
	if err != nil {
		t.Fatal(err)
	}
	before := inode(t, tool)
	cpus, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if err := runScript(t.Context(), step{name: "a", script: "./script"}, halves(cpus)[0], tool); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(filepath.Join(stateDir, "a.log")); err != nil || string(log) != "my go run ./hack/docs\n" {
		t.Errorf("%q, %v", log, err)
	}
	if after := inode(t, tool); after != before {
		t.Error("a script that begins writes the go of the others again")
	}
}

// inode is the file and when it was changed.
func inode(t *testing.T, name string) [2]int64 {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(name, &s); err != nil {
		t.Fatal(err)
	}
	return [2]int64{int64(s.Ino), s.Ctim.Nano()}
}

//go:build lab

package run_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/record"
)

// hostToy is toy in namespaces of this machine's kernel. It skips the test when the machine grants none.
func hostToy(t *testing.T, change func(*run.Options)) (*run.Result, []byte, error) {
	t.Helper()
	result, events, err := toy(t, func(o *run.Options) { o.Kernel = "host"; change(o) })
	if refused := new(host.RefusedError); errors.As(err, &refused) {
		t.Skip(refused)
	}
	return result, events, err
}

func TestHostRunRecordsItsKernel(t *testing.T) {
	result, events, err := hostToy(t, func(*run.Options) {})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(events), "\n"); n != 20 {
		t.Errorf("the toy recorded %d events, want 20", n)
	}
	var head record.Run
	data, err := os.ReadFile(filepath.Join(result.Dir, "history", record.RunFile))
	if err == nil {
		err = json.Unmarshal(data, &head)
	}
	var u unix.Utsname
	_ = unix.Uname(&u)
	if want := (record.Kernel{Kind: "host", Release: unix.ByteSliceToString(u.Release[:])}); err != nil || head.Kernel != want || head.Clock != "real" {
		t.Errorf("the run has %+v, clock %q, %v; want %+v with the real clock", head.Kernel, head.Clock, err, want)
	}
}

func TestHostBadEndsAreInvalid(t *testing.T) {
	for end, c := range map[string]struct {
		deadline time.Duration
		want     string
	}{"hang": {2 * time.Second, "did not end within 2s"}, "panic": {time.Minute, "in a VM only"}} {
		_, _, err := hostToy(t, func(o *run.Options) { o.Set = map[string]string{"end": end}; o.Deadline = c.deadline })
		if !errors.As(err, new(*run.InvalidError)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a guest on the host that should %s gave %v, want an InvalidError with %q", end, err, c.want)
		}
	}
}

// A subject that needs IPVS is refused on every machine, because user namespaces hide the sysctls of IPVS.
func TestHostRefusesSubjectThatNeedsIPVS(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	_, err := run.Run(t.Context(), run.Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "bundled", ControlPlane: "replay", Kernel: "host"}, Program: program, Out: out})
	if refused := new(host.RefusedError); errors.As(err, &refused) {
		t.Skip(refused)
	}
	if !run.IsUsage(err) || !strings.Contains(err.Error(), "--kernel vm") || !strings.Contains(strings.ToLower(err.Error()), "ipvs") {
		t.Errorf("a subject that needs IPVS gave %v, want a usage error that names IPVS", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the folder for the results was created")
	}
}

// A system that grants namespaces without rights in them is a usage error, not a defect. Here /proc is partly hidden, as in containers.
func TestHostExplainsRefusedRights(t *testing.T) {
	if _, _, err := hostToy(t, func(*run.Options) {}); err != nil { // skips
		t.Fatal(err)
	}
	script := `mount -t tmpfs none /proc/fs && exec "$0" run toy --kernel host --out "$1"`
	out, err := exec.Command("unshare", "-Urm", "sh", "-c", script, program, t.TempDir()).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "mounting /proc") || !strings.Contains(string(out), "privileged mode") {
		t.Errorf("%v, want exit code 2 and advice:\n%s", err, out)
	}
}

// An interrupted or killed run on the host leaves no process.
func TestHostLeavesNoProcess(t *testing.T) {
	if _, _, err := hostToy(t, func(*run.Options) {}); err != nil { // skips
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		signal syscall.Signal
		code   int
	}{"interrupted": {syscall.SIGINT, 130}, "killed": {syscall.SIGKILL, -1}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, "run", "toy", "--kernel", "host", "--set", "end=hang", "--out", t.TempDir())
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			var guests []int
			within(t, "the guest to run", func() bool {
				guests = descendants(cmd.Process.Pid)
				return slices.ContainsFunc(guests, func(pid int) bool { return strings.HasPrefix(commandLine(pid), "/usr/bin/hitless\x00guest") })
			})
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			within(t, "the guest's processes to end", func() bool {
				return !slices.ContainsFunc(guests, func(pid int) bool { return strings.Contains(commandLine(pid), "hitless") })
			})
		})
	}
}

func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

// descendants returns the descendants of this process, in all process namespaces below.
func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range tasks {
		data, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(append(all, n), descendants(n)...)
			}
		}
	}
	return all
}

func commandLine(pid int) string {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(data)
}

//go:build unix

package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/probes/watch"
	"github.com/hitless/hitless/reports"
)

// asProgram makes the test binary act as hitless, because the worker of a watch is a separate process.
const asProgram = "HITLESS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience is the timeout for actions that take seconds on an idle machine.
const patience = 2 * time.Minute

// program is a call of hitless as a process.
func program(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

// call runs hitless to its end.
func call(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	out, err := program(args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("hitless %q: %v", args, err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(out)
}

// target is a server on loopback that can be closed.
func target(t *testing.T) (address string, server *http.Server) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("web-1")) })}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String(), server
}

// started starts a watch, which ends with the test at the latest.
func started(t *testing.T, address, out string, flags ...string) {
	t.Helper()
	t.Cleanup(func() { _, _ = call(t, "watch", "stop", "--out", out) })
	code, text := call(t, append([]string{"watch", "start", address, "--rate", "20", "--out", out}, flags...)...)
	if code != 0 || !strings.Contains(text, "make your change now; `hitless watch stop --out "+out) {
		t.Fatalf("exit %d:\n%s", code, text)
	}
}

// until polls a running watch.
func until(t *testing.T, out, what string, is func(watch.State) bool) watch.State {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		s, err := watch.Status(out)
		if err == nil && is(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v the watch has not %s: %v, %v", patience, what, s, err)
		}
	}
}

// kill kills a running watch, and waits until its status says that it does not run.
func kill(t *testing.T, s watch.State, out string) {
	t.Helper()
	if err := unix.Kill(s.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := watch.Status(out); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the status is running after a kill")
		}
	}
}

// stopped stops a watch, and compares its exit code with the verdict of its report. It skips the test when nothing but a busy machine made
// the watch invalid.
func stopped(t *testing.T, out string, want analysis.Verdict) *analysis.Report {
	t.Helper()
	code, text := call(t, "watch", "stop", "--out", out)
	r, err := analysis.Read(filepath.Join(out, reports.ReportFile))
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, text)
	}
	if code != r.Verdict.ExitCode() || !strings.Contains(text, "hitless watch start 127.0.0.1:") {
		t.Errorf("exit %d with verdict %s:\n%s", code, r.Verdict, text)
	}
	if r.Verdict == analysis.Invalid && want != analysis.Invalid && testfiles.OnlyLate(r.Reasons) {
		t.Skipf("the machine is too busy to measure: %q", r.Reasons)
	}
	if r.Verdict != want {
		t.Errorf("verdict %s, want %s: %q", r.Verdict, want, r.Reasons)
	}
	return r
}

// The red twin: an outage between start and stop is in the report. A second watch is refused during that time.
func TestWatchFindsALoss(t *testing.T) {
	t.Parallel()
	address, server := target(t)
	out := t.TempDir()
	started(t, address, out)
	if code, text := call(t, "watch", "start", address, "--out", out); code != exitUsage || !strings.Contains(text, "is running in "+out+" already") {
		t.Errorf("a second watch: exit %d:\n%s", code, text)
	}
	if code, text := call(t, "watch", "status", "--out", out); code != 0 || !strings.Contains(text, "measuring of "+address) {
		t.Errorf("status: exit %d:\n%s", code, text)
	}
	server.Close()
	until(t, out, "met the loss", func(s watch.State) bool { return s.Failures > 0 })
	r := stopped(t, out, analysis.Fail)
	if r.Totals.ByClass["refused"] == 0 || len(r.Lanes[0].Outages) != 1 {
		t.Errorf("%+v, want one outage of refused connections", r.Lanes)
	}
	if code, text := call(t, "watch", "stop", "--out", out); code != exitUsage || !strings.Contains(text, "was stopped at") {
		t.Errorf("stopped twice: exit %d:\n%s", code, text)
	}
	if code, text := call(t, "watch", "status", "--out", out); code != exitUsage || !strings.Contains(text, "no watch is running") {
		t.Errorf("status of what is over: exit %d:\n%s", code, text)
	}
}

// A killed watch leaves its record: a new watch is refused, and stop gives an invalid report.
func TestKilledWatch(t *testing.T) {
	t.Parallel()
	address, _ := target(t)
	out := t.TempDir()
	started(t, address, out, "--record", "all") // a thinned record has the last seconds only at the end
	s := until(t, out, "recorded", func(s watch.State) bool { return s.Attempts > 0 })
	kill(t, s, out)
	for _, verb := range []string{"start " + address, "status"} {
		args := append(append([]string{"watch"}, strings.Fields(verb)...), "--out", out)
		if code, text := call(t, args...); code != exitUsage || !strings.Contains(text, "the machine went down") || !strings.Contains(text, "watch stop") {
			t.Errorf("%s after a kill: exit %d:\n%s", verb, code, text)
		}
	}
	r := stopped(t, out, analysis.Invalid)
	if r.Totals.Attempts == 0 || !slices.ContainsFunc(r.Reasons, func(s string) bool { return strings.Contains(s, `no phase "end"`) }) {
		t.Errorf("%d attempts, reasons %q, want a reason about the missing end", r.Totals.Attempts, r.Reasons)
	}
	started(t, address, out) // and the folder is free again
	begun := until(t, out, "begun", func(s watch.State) bool { return s.Attempts > 0 }).Attempts
	until(t, out, "measured enough for a pass", func(s watch.State) bool { return s.Attempts >= begun+10 })
	stopped(t, out, analysis.Pass)
}

// A watch whose duration is over has its verdict when it is stopped.
func TestWatchEndsByItself(t *testing.T) {
	t.Parallel()
	address, _ := target(t)
	out := t.TempDir()
	started(t, address, out, "--duration", "1s")
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := watch.Status(out); err != nil && strings.Contains(err.Error(), "ended by itself") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the watch does not end: %v", err)
		}
	}
	stopped(t, out, analysis.Pass)
}

func TestAWatchOfOneAttempt(t *testing.T) {
	for attempts, want := range map[int]string{1: ": 1 attempt, 0 of them failed", 2000: ": 2,000 attempts, 0 of them failed"} {
		if text := (watch.State{Phase: watch.Measuring, Attempts: attempts}).String(); !strings.HasSuffix(text, want) {
			t.Errorf("%q, want %q at its end", text, want)
		}
	}
}

// A target that cannot be measured is an error of start. It leaves no process, and does not change an older report.
func TestWatchThatCannotStart(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	kept := filepath.Join(out, reports.ReportFile)
	for _, file := range []string{kept, filepath.Join(out, reports.HostFile)} {
		if err := os.WriteFile(file, []byte("an older run"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, text := call(t, "watch", "stop", "--out", out); code != exitUsage || !strings.Contains(text, "no watch was started in "+out) {
		t.Errorf("stop of nothing: exit %d:\n%s", code, text)
	}
	for _, c := range []struct{ args, want string }{
		{"127.0.0.1:1", "cannot be measured"},
		{"nowhere", "HOST:PORT"},
		{"127.0.0.1:80 --rate fast", "rate"},
		{"127.0.0.1:80 --policy sometimes", "fresh"},
		{"127.0.0.1:80 --source here", "--source"},
	} {
		args := append([]string{"watch", "start"}, strings.Fields(c.args)...)
		code, text := call(t, append(args, "--out", out)...)
		if code != exitUsage || !strings.Contains(text, c.want) {
			t.Errorf("watch start %s: exit %d, want %d and a word of %q:\n%s", c.args, code, exitUsage, c.want, text)
		}
		if s, err := watch.Status(out); err == nil {
			t.Errorf("watch start %s left a watch behind: %v", c.args, s)
		}
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "an older run" {
		t.Errorf("a watch that did not start changed an older report: %q, %v", data, err)
	}
	if code, text := call(t, "watch", "worker", "127.0.0.1:1"); code != exitUsage || !strings.Contains(text, "hitless watch start") {
		t.Errorf("the worker alone: exit %d:\n%s", code, text)
	}
}

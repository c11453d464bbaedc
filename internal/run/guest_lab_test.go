//go:build lab

package run_test

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/suites"
)

// program is a new build of hitless with the guest programs for tests.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hitless-test-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "hitless")
	code := 1
	if err := suites.TestProgram(program); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// toy runs the guest's own small program and returns the events of its history.
func toy(t *testing.T, change func(*run.Options)) (*run.Result, []byte, error) {
	t.Helper()
	o := run.Options{Scenario: guest.ToyScenario, LabOptions: site.LabOptions{ControlPlane: "replay"}, Seed: 1, Out: t.TempDir(), Program: program, Progress: progress.Lines(func(line string) { t.Log(line) })}
	change(&o)
	result, err := run.Run(t.Context(), o)
	events, _ := os.ReadFile(filepath.Join(o.Out, "history", "events.ndjson"))
	return result, events, err
}

func TestSamePlanSameHistory(t *testing.T) {
	t.Parallel()
	hog, stop := context.WithCancel(t.Context())
	first, events, err := toy(t, func(*run.Options) {})
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(events, []byte("\n")); n != 20 {
		t.Fatalf("the toy recorded %d events, want 20", n)
	}
	spin(hog, t)
	second, _, err := toy(t, func(*run.Options) {})
	stop()
	if err != nil {
		t.Fatal(err)
	}
	if first.InputsSha256 != second.InputsSha256 || first.HistorySha256 != second.HistorySha256 {
		t.Errorf("equal plans gave unequal histories: %s and, concurrently with a CPU hog, %s", first.HistorySha256, second.HistorySha256)
	}
}

func TestAnotherSeedAnotherHistory(t *testing.T) {
	t.Parallel()
	_, one, err := toy(t, func(*run.Options) {})
	if err != nil {
		t.Fatal(err)
	}
	_, two, err := toy(t, func(o *run.Options) { o.Seed = 2 })
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one, two) {
		t.Error("seed 1 and seed 2 gave the same events: the seed does not reach the guest's random pool")
	}
}

// The red twin of TestSamePlanSameHistory: with the real clock histories differ.
func TestRealClockDoesNotRepeat(t *testing.T) {
	t.Parallel()
	_, one, err := toy(t, func(o *run.Options) { o.Kernel, o.Clock = "vm", "real" })
	if err != nil {
		t.Fatal(err)
	}
	_, two, err := toy(t, func(o *run.Options) { o.Kernel, o.Clock = "vm", "real" })
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one, two) {
		t.Error("two runs with the real clock gave the same events, so the comparison proves nothing")
	}
}

func TestBadEndsAreInvalid(t *testing.T) {
	for name, c := range map[string]struct {
		deadline time.Duration
		want     string
	}{"panic": {2 * time.Minute, "Kernel panic"}, "hang": {15 * time.Second, "did not end within 15s"}} {
		t.Run(name, func(t *testing.T) {
			_, _, err := toy(t, func(o *run.Options) { o.Set = map[string]string{"end": name}; o.Deadline = c.deadline })
			if !errors.As(err, new(*run.InvalidError)) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("a guest that ends with a %s gave %v, want an InvalidError with %q", name, err, c.want)
			}
		})
	}
}

func TestInterruptEndsTheGuest(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // what others leave meanwhile is not this guest's
	ctx, cancel := context.WithCancel(t.Context())
	before := left(t)
	o := run.Options{Scenario: guest.ToyScenario, LabOptions: site.LabOptions{ControlPlane: "replay"}, Set: map[string]string{"end": "hang"}, Out: t.TempDir(), Program: program}
	running, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // while other tests have the CPUs
			if seen := left(t); strings.Contains(seen, "qemu") && strings.Contains(seen, "/hitless-vm-") {
				running = true
				return
			}
		}
	}()
	_, err := run.Run(ctx, o)
	cancel()
	<-ended
	if !running {
		t.Fatalf("no running guest was found to interrupt; the run gave %v", err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted run gave %v", err)
	}
	if after := left(t); after != before {
		t.Errorf("an interrupted run left processes or files: before\n%s\nafter\n%s", before, after)
	}
}

// left lists the resources of this process's guests: processes of QEMU, files in guests' folders, and folders without an owner.
func left(t *testing.T) string {
	t.Helper()
	children, _ := exec.Command("pgrep", "-P", strconv.Itoa(os.Getpid()), "-x", "qemu-system-x86").Output()
	var found []string
	for _, pid := range strings.Fields(string(children)) {
		found = append(found, "qemu "+pid)
	}
	open, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range open {
		if file, err := os.Readlink(fd); err == nil && strings.Contains(file, "/hitless-vm-") {
			found = append(found, file)
		}
	}
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), "hitless-vm-*", "lock"))
	for _, name := range locks {
		lock, err := os.Open(name)
		if err == nil && unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			found = append(found, filepath.Dir(name))
		}
		lock.Close()
	}
	return strings.Join(found, " ")
}

// spin occupies each CPU until ctx ends, and must have had time there.
func spin(ctx context.Context, t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		hog := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := hog.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = hog.Process.Kill()
			_ = hog.Wait()
			if hog.ProcessState.UserTime() == 0 {
				t.Error("a CPU hog had no time: the comparison shows nothing")
			}
		})
	}
}

// The program has no commit stamp, because it is an input of the history: a commit without changes of sources must not change it.
func TestProgramHasNoCommitStamp(t *testing.T) {
	for _, file := range []string{program, "../../bin/hitless"} { // the second one is that of `make build`
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; run `make build` first", err)
		}
		for _, s := range info.Settings {
			if strings.HasPrefix(s.Key, "vcs") {
				t.Errorf("%s has %s=%s", file, s.Key, s.Value)
			}
		}
	}
}

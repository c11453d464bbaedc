//go:build lab

package host_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/vm"
)

// The test binary plays the first process and the runner, as hitless does.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "inside" {
		os.Exit(m.Run())
	}
	var err error
	if mode := os.Args[2]; os.Getpid() == 1 {
		err = host.Init("/runner", "inside", mode)
	} else {
		err = runInside(mode)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// runInside is the runner: its trailer lists defects of the guest's isolation.
func runInside(mode string) error {
	region, err := host.OpenRegion()
	if err != nil {
		return err
	}
	if mode == "hang" {
		fmt.Println("hanging")
		return unix.Pause() // the runtime would end a program of which all goroutines wait
	}
	plan, err := vm.GetPlan(region)
	if err == nil && string(plan) != "the plan" {
		err = fmt.Errorf("the plan is %q", plan)
	}
	reason := ""
	if err = errors.Join(err, isolationDefects(), checkGuestRights()); err != nil {
		reason = err.Error()
	}
	return vm.NewFrameWriter(region).Write(vm.FrameTrailer, []byte(reason))
}

// isolationDefects lists the resources of the host that the guest can see or change.
func isolationDefects() error {
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if interfaces, err := net.Interfaces(); err != nil || len(interfaces) != 1 || interfaces[0].Name != "lo" {
		complain("the guest sees the interfaces %v, %v", interfaces, err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		complain("reading the root: %v", err)
	}
	for _, e := range entries {
		if !strings.Contains(" bin dev etc lib lib64 proc run runner sbin sys text tmp usr var ", " "+e.Name()+" ") {
			complain("the guest's root has /%s", e.Name())
		}
	}
	for _, file := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/panic", "/proc/sys/vm/swappiness", "/proc/sys/user/max_user_namespaces", "/runner"} {
		if f, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil { // nothing is written
			f.Close()
			complain("the guest can write to %s", file)
		}
	}
	if len(os.Environ()) != 2 {
		complain("the guest's environment is %v, want PATH and HOME", os.Environ())
	}
	if pids, _ := filepath.Glob("/proc/[0-9]*"); len(pids) != 2 {
		complain("the guest sees the processes %v, want the first one and itself", pids)
	}
	return errors.Join(wrong...)
}

// checkGuestRights does what a guest must be able to do.
func checkGuestRights() error {
	text, err := os.ReadFile("/text")
	if err == nil && string(text) != "a text" {
		err = fmt.Errorf("the guest's file holds %q", text)
	}
	return errors.Join(err,
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
		os.WriteFile("/tmp/file", nil, 0o600), os.WriteFile("/run/file", nil, 0o600))
}

func job(t *testing.T, mode string) host.Job {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	img := vm.NewImage()
	img.Text("/text", "a text")
	img.Add("/runner", self, 0o755) // it is static: CGO_ENABLED=0
	return host.Job{Program: self, Args: []string{"inside", mode}, Plan: []byte("the plan"), Deadline: time.Minute,
		Files: img.Files(), Line: func(line string) { t.Log(line) }}
}

// runJob runJob the job, and skips the test on a machine that grants no namespaces.
func runJob(ctx context.Context, t *testing.T, j host.Job) (*vm.Outcome, error) {
	t.Helper()
	outcome, err := host.Run(ctx, j)
	if refused := new(host.RefusedError); errors.As(err, &refused) {
		t.Skip(refused)
	}
	return outcome, err
}

func TestGuestIsIsolatedFromTheHost(t *testing.T) {
	outcome, err := runJob(t.Context(), t, job(t, "look"))
	if err != nil {
		t.Fatal(err)
	}
	defer outcome.Close()
	kind, reason, err := vm.NewFrameReader(outcome.Region).Next()
	if err != nil || kind != vm.FrameTrailer || len(reason) > 0 {
		t.Errorf("frame %v, %v: %s", kind, err, reason)
	}
}

// Without user namespaces root starts the guest directly, and the guest is isolated all the same.
func TestRootNeedsNoUserNamespaces(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-Urnm", "sh", "-c",
		`echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -test.v -test.run '^TestGuestIsIsolatedFromTheHost$'`, self).CombinedOutput()
	if strings.Contains(string(out), "unshare:") {
		t.Skipf("this machine grants no namespaces: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestGuestIsIsolatedFromTheHost") {
		t.Errorf("root without a user namespace: %v\n%s", err, out)
	}
}

// The red twin of TestGuestIsIsolatedFromTheHost: the host itself has defects.
func TestIsolationDefectsAreFoundOnTheHost(t *testing.T) {
	err := isolationDefects()
	for _, want := range []string{"the guest's root has /home", "processes", "environment"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("on the host itself the defects are %v, want one with %q", err, want)
		}
	}
}

func TestGuestEndsAtItsDeadlineAndOnCancel(t *testing.T) {
	late := job(t, "hang")
	late.Deadline = 10 * time.Second // it prints its line before
	outcome, err := runJob(t.Context(), t, late)
	if err == nil || !strings.Contains(err.Error(), "did not end within 10s") {
		t.Fatalf("a guest that hangs gave %v", err)
	}
	if len(outcome.Console) == 0 || outcome.Console[0] != "hanging" {
		t.Errorf("the last lines of its console are %q", outcome.Console)
	}
	outcome.Close()

	ctx, cancel := context.WithCancel(t.Context())
	stopped := job(t, "hang")
	stopped.Line = func(string) { cancel() }
	outcome, err = runJob(ctx, t, stopped)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a guest that was interrupted gave %v", err)
	}
	outcome.Close()
}

func TestMissingFileIsAnError(t *testing.T) {
	j := job(t, "look")
	j.Files = append(j.Files, vm.File{Guest: "/none", Host: filepath.Join(t.TempDir(), "none")})
	outcome, err := runJob(t.Context(), t, j)
	if err == nil || outcome == nil || !strings.Contains(strings.Join(outcome.Console, "\n"), "/none") {
		t.Fatalf("a guest with a missing file gave %v", err)
	}
	outcome.Close()
}

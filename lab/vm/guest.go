package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
)

// ModuleList is the guest's file that names the modules to load, one path a line, in order.
const ModuleList = "/etc/hitless-modules"

// Init is the guest's first process: it mounts, loads modules, starts the runner, reaps what nobody waits for, and
// turns the machine off when the runner has ended. The runner is a child, because a reaper in the same process would
// steal os/exec's children. Init never returns.
func Init(runner string, args ...string) {
	debug.SetGCPercent(-1) // it makes none, and would collect it every two minutes
	if err := initialise(runner, args); err != nil {
		fmt.Println("hitless: guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func initialise(runner string, args []string) error {
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"tmpfs", "/tmp", "size=75%"}, {"tmpfs", "/run", "size=50%"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	if err := SeedPool(0); err != nil { // else whoever first asks for random numbers waits a second for them
		return err
	}
	InRhythm().Await() // the first network namespace is this one, and IPVS comes to it now
	if err := loadModules(); err != nil {
		return err
	}
	return runLeisurely(runner, args)
}

// slack is by how much the timers of the runner may be late. Go waits for its next timer in whole milliseconds, and its
// watchman (sysmon), which waits in microseconds, wakes ten times for each timer that this makes late by a part of one;
// each time, an idle guest is woken. With this slack both wake together. What measures is in other programs, which
// procs starts with the kernel's own slack.
const slack = 2 * time.Millisecond

// runLeisurely is RunAndReap with timers that may be late by slack.
func runLeisurely(runner string, args []string) error {
	runtime.LockOSThread() // slack is a thread's, and inherited by what it starts (prctl(2), PR_SET_TIMERSLACK)
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("letting the runner's timers be late: %w", err)
	}
	return RunAndReap(runner, args)
}

// RunAndReap starts the runner with the guest's environment, hands it the given files from descriptor 3 on, and waits for
// its end. It reaps every process that nobody waits for, so the caller must be the first of its process namespace.
func RunAndReap(runner string, args []string, files ...*os.File) error {
	os.Setenv("PATH", "/usr/sbin:/usr/bin")
	os.Setenv("HOME", "/tmp")
	child, err := os.StartProcess(runner, append([]string{runner}, args...),
		&os.ProcAttr{Files: append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, files...), Env: os.Environ()})
	if err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the runner: %w", err)
		}
		if pid == child.Pid {
			if status.Signaled() || status.ExitStatus() != 0 {
				return fmt.Errorf("the runner ended with status %d, signal %v", status.ExitStatus(), status.Signal())
			}
			return nil
		}
	}
}

// Uptime is the kernel's monotonic clock; 0 if it cannot be read, which has not been seen.
func Uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// InRhythm is the rhythm of a guest's namespaces.
func InRhythm() *topology.Rhythm { return &topology.Rhythm{Now: Uptime, Sleep: time.Sleep} }

func loadModules() error {
	list, err := os.ReadFile(ModuleList)
	if err != nil {
		return fmt.Errorf("reading the list of modules: %w", err)
	}
	for path := range strings.FieldsSeq(string(list)) {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("loading a module: %w", err)
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading the module %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

//go:build linux

package vm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
)

// Init is the guest's first process: it mounts file systems, loads modules, pauses, unpacks the other files, starts the runner, reaps
// orphans, and powers the VM off when the runner has ended. The runner is a child process, because a reaper in the same process
// would reap the children of os/exec. Init never returns.
func Init(runner string, args ...string) {
	debug.SetGCPercent(-1) // Init allocates nothing; the periodic collection would wake an idle guest
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
	if err := SeedPool(0); err != nil { // without a seed the first read of random numbers blocks for a second
		return err
	}
	NewPacer().Await() // the modules add IPVS to the initial network namespace
	if err := loadModules(); err != nil {
		return err
	}
	if err := Pause(); err != nil {
		return err
	}
	if err := unpackFiles(); err != nil {
		return err
	}
	return runWithSlack(runner, args)
}

// timerSlack is how late the runner's timers may be. Go rounds timers to milliseconds, while its background monitor
// (sysmon) polls in microseconds and wakes an idle guest about ten times per timer. With this slack both wake
// together. Probe workers are other programs, which package procs starts with the kernel's default slack.
const timerSlack = 2 * time.Millisecond

// runWithSlack is RunAndReap with timers that may be late by timerSlack.
func runWithSlack(runner string, args []string) error {
	runtime.LockOSThread() // the slack belongs to the thread; child processes inherit it (prctl(2), PR_SET_TIMERSLACK)
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err != nil {
		return fmt.Errorf("setting the timer slack of the runner: %w", err)
	}
	return RunAndReap(runner, args)
}

// RunAndReap starts the runner with the guest's environment, passes it the files from descriptor 3 on, and waits for
// its end. It reaps orphaned processes, so the caller must be PID 1 of its PID namespace.
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

// Uptime returns the kernel's monotonic clock, 0 if it cannot be read.
func Uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// NewPacer returns a pacer for the creation of network namespaces in a guest.
func NewPacer() *topology.Pacer { return &topology.Pacer{Now: Uptime, Sleep: time.Sleep} }

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

// The ioctls of random(4) that x/sys does not define, for amd64 and arm64.
const (
	rndAddEntropy = 0x40085203
	rndReseed     = 0x5207
)

// SeedPool reseeds the guest's random pool (random(4), RNDADDENTROPY and RNDRESEEDCRNG). All other entropy in the
// pool is the same in every guest.
func SeedPool(seed int64) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("seeding the guest's random pool: %w", err)
	}
	defer f.Close()
	added := struct {
		bits, size int32
		seed       [sha256.Size]byte
	}{8 * sha256.Size, sha256.Size, sha256.Sum256(fmt.Appendf(nil, "hitless seed %d", seed))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndAddEntropy, uintptr(unsafe.Pointer(&added))); errno != 0 {
		return fmt.Errorf("seeding the guest's random pool: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndReseed, 0); errno != 0 {
		return fmt.Errorf("reseeding the guest's random pool: %w", errno)
	}
	return nil
}

//go:build linux

// Package host runs a guest in namespaces of this machine's kernel: the same files at the same paths as in lab/vm,
// and the same plan and history through the same region, but with the real clock. The guest is isolated from this
// machine: its root is a tmpfs with the guest's files, bound read-only, and its network, process, mount, IPC and UTS
// namespaces are new. Runs are not deterministic.
//
// The package does not interpret the plan or the history.
package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/vm"
)

// Job configures a guest.
type Job struct {
	// Program is the hitless binary. Called with Args it must call Init, as the first process of the namespaces.
	Program string
	Args    []string
	Files   []vm.File // from Image.Files
	Plan    []byte
	// Pass are files for the runner, from descriptor FirstPassed on.
	Pass []*os.File
	// OwnCPU binds the guest to a CPU that no other run uses; Run waits for one.
	OwnCPU bool
	// Deadline is the time after which the guest is killed, 0 for none.
	Deadline time.Duration
	// Line gets each line that the guest prints.
	Line func(string)
}

// RefusedError reports that the caller may not create the namespaces that a guest needs.
type RefusedError struct{ reason error }

// Error describes the failed operation, the kernel's error and the remedy.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("creating namespaces on this machine was refused (%v); allow user namespaces (sysctl user.max_user_namespaces; "+
		"on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in a container the privileged mode)", e.reason)
}

// Unwrap returns the kernel's error.
func (e *RefusedError) Unwrap() error { return e.reason }

// Run runs the guest and waits until it ends, the deadline passes or ctx is cancelled. An Outcome with a console may
// accompany an error. Nothing stays behind, even after kill -9 of the caller: the first process dies with the caller,
// all others die with the first process, and no file is created.
func Run(ctx context.Context, j Job) (*vm.Outcome, error) {
	out, region, err := newRegion(j.Plan)
	if err != nil {
		return nil, err
	}
	out.CPU = vm.AnyCPU
	if j.OwnCPU {
		cpu, err := vm.AcquireCPU(ctx, j.Line)
		if err != nil {
			out.Close()
			return nil, err
		}
		defer cpu.Release()
		out.CPU = cpu.Number
	}
	if err := j.supervise(ctx, region, out); err != nil {
		if errors.As(err, new(*RefusedError)) {
			out.Close()
			return nil, err
		}
		return out, err
	}
	return out, nil
}

// newRegion creates the region in anonymous memory, which ends with its last user.
func newRegion(plan []byte) (*vm.Outcome, *os.File, error) {
	fd, err := unix.MemfdCreate("hitless region", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the region between guest and host: %w", err)
	}
	file := os.NewFile(uintptr(fd), "region")
	out, err := vm.NewOutcome(file)
	if err != nil {
		return nil, nil, err
	}
	// A guest that truncates the file would end this process with SIGBUS.
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		out.Close()
		return nil, nil, fmt.Errorf("fixing the size of the region: %w", err)
	}
	if err := vm.PutPlan(out.Region, plan); err != nil {
		out.Close()
		return nil, nil, err
	}
	return out, file, nil
}

// supervise starts the first process and waits for it.
func (j Job) supervise(ctx context.Context, region *os.File, out *vm.Outcome) error {
	if j.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, j.Deadline, fmt.Errorf("the guest did not end within %s", j.Deadline))
		defer cancel()
	}
	files, err := json.Marshal(j.Files)
	if err != nil {
		return fmt.Errorf("listing the guest's files: %w", err)
	}
	console := &console{line: j.Line}
	cmd, ended, err := j.start(files, region, console, out.CPU)
	if err != nil {
		return err
	}
	begin := time.Now()
	var exit, cause error
	select {
	case exit = <-ended:
	case <-ctx.Done():
		cause = context.Cause(ctx)
		_ = cmd.Process.Kill() // the kernel kills the other processes first (pid_namespaces(7))
		<-ended
	}
	out.Wall = time.Since(begin)
	out.Console = console.close()
	var code *exec.ExitError
	switch {
	case cause != nil:
		return cause
	case errors.As(exit, &code) && code.ExitCode() == refusedCode && len(out.Console) > 0:
		return &RefusedError{errors.New(out.Console[len(out.Console)-1])}
	case exit != nil:
		return fmt.Errorf("the guest's first process ended with %w", exit)
	}
	return nil
}

// start starts the first process.
func (j Job) start(files []byte, region *os.File, console *console, cpu int) (*exec.Cmd, <-chan error, error) {
	return isolated(cpu, unix.CLONE_NEWNET|unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS, func() *exec.Cmd {
		cmd := exec.Command(j.Program, j.Args...)
		cmd.Env = []string{passedVariable + "=" + strconv.Itoa(len(j.Pass))}
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(files), console, console, append([]*os.File{region}, j.Pass...)
		return cmd
	})
}

// isolated starts a command in new namespaces, which end with this process. It gets a user namespace, also for root: this limits its
// rights to its own network namespace. Root can do without, where the kernel grants no user namespace.
func isolated(cpu int, namespaces uintptr, command func() *exec.Cmd) (*exec.Cmd, <-chan error, error) {
	var refused error
	for _, user := range []bool{true, false} {
		if !user && os.Geteuid() != 0 {
			break
		}
		cmd := command()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: namespaces}
		if user {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
		ended, err := launch(cmd, cpu)
		if err == nil {
			return cmd, ended, nil
		}
		if !isNamespaceRefusal(err) {
			return nil, nil, fmt.Errorf("starting the first process of new namespaces: %w", err)
		}
		if refused == nil {
			refused = err
		}
	}
	return nil, nil, &RefusedError{refused}
}

// isNamespaceRefusal reports whether err is one of the errors of clone(2) and user_namespaces(7) for missing rights
// or exceeded limits.
func isNamespaceRefusal(err error) bool {
	for _, known := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// launch starts the command on a goroutine that keeps its thread: the process inherits the thread's CPU affinity and
// dies with the thread (PR_SET_PDEATHSIG).
func launch(cmd *exec.Cmd, cpu int) (<-chan error, error) {
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's CPU mask may have changed
		var err error
		if cpu != vm.AnyCPU {
			err = vm.PinThread(cpu)
			// Failure is not an error: the lateness of the attempts shows whether the guest got enough CPU time.
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
		}
		if err == nil {
			err = cmd.Start()
		}
		if err == nil && cpu != vm.AnyCPU {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(strconv.Itoa(niceness)), 0)
		}
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// niceness gives the guest priority over ordinary programs of this machine, where that is allowed (setpriority(2)):
// the guest is mostly idle, and an attempt that starts late is a lost measurement. QEMU's CPU thread has the same
// value.
const niceness = -10

// console passes on the guest's lines and keeps the last ones. Write is not called concurrently: os/exec uses one
// pipe for equal writers.
type console struct {
	line func(string)
	tail []string
	rest []byte
}

// Write accepts a piece of the guest's output.
func (c *console) Write(data []byte) (int, error) {
	c.rest = append(c.rest, data...)
	for {
		i := bytes.IndexByte(c.rest, '\n')
		if i < 0 {
			return len(data), nil
		}
		text := strings.TrimRight(string(c.rest[:i]), "\r")
		c.rest = c.rest[i+1:]
		if c.tail = append(c.tail, text); len(c.tail) > 200 {
			c.tail = c.tail[100:]
		}
		if c.line != nil {
			c.line(text)
		}
	}
}

// close returns the last lines.
func (c *console) close() []string {
	if len(c.rest) > 0 {
		c.tail = append(c.tail, string(c.rest))
	}
	return c.tail
}

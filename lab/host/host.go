// Package host runs a guest in namespaces of this machine's own kernel: the same files at the same paths as in lab/vm, the
// same plan and history through the same region, but the real clock. Nothing of this machine is in sight there: the root
// is a memory file system with the guest's files, bound read-only, and the network, process, mount, IPC and host name
// spaces are new. No history repeats.
//
// It knows nothing of what the plan says or what the guest does with it.
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

// Job says what to run and for how long at most.
type Job struct {
	// Program is the hitless binary, which is the first process of the namespaces too: called with Args it calls Init.
	Program string
	Args    []string
	Files   []vm.File // from Image.Files
	Plan    []byte
	// Pass are handed to the runner, from descriptor FirstPassed on.
	Pass []*os.File
	// OwnCPU binds the guest to a CPU that no other run uses, and waits for one.
	OwnCPU bool
	// Deadline is the time after which the guest is ended, 0 for none.
	Deadline time.Duration
	// Line gets each line that the guest prints, as it comes.
	Line func(string)
}

// RefusedError says that this machine does not let the caller make the namespaces that a guest needs.
type RefusedError struct{ reason error }

// Error says what was tried, what was found and what to do.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("making namespaces of this machine's kernel was refused (%v); allow user namespaces (sysctl user.max_user_namespaces; "+
		"on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in a container the privileged mode)", e.reason)
}

// Unwrap returns the kernel's answer.
func (e *RefusedError) Unwrap() error { return e.reason }

// Run runs the guest and waits for its end: by itself, at the deadline, or when ctx is cancelled. An Outcome comes back
// with an error too, when there is something to show. Nothing is left behind, not even after kill -9 of the caller: the
// first process dies with it, everything else with the first process, and no file is made.
func Run(ctx context.Context, j Job) (*vm.Outcome, error) {
	out, region, err := newRegion(j.Plan)
	if err != nil {
		return nil, err
	}
	out.CPU = anyCPU
	if j.OwnCPU {
		cpu, err := vm.TakeCPU(ctx, j.Line)
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

// anyCPU stands in Outcome.CPU for a guest that was not bound to one.
const anyCPU = -1

// newRegion makes the region in memory that has no name, so that it goes with the last process that holds it.
func newRegion(plan []byte) (*vm.Outcome, *os.File, error) {
	fd, err := unix.MemfdCreate("hitless region", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("making the region between guest and host: %w", err)
	}
	file := os.NewFile(uintptr(fd), "region")
	out, err := vm.NewOutcome(file)
	if err != nil {
		return nil, nil, err
	}
	// A guest that made the file shorter would end this process with SIGBUS.
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
		ctx, cancel = context.WithTimeoutCause(ctx, j.Deadline, fmt.Errorf("the guest did not come to its end within %s", j.Deadline))
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
		_ = cmd.Process.Kill() // the kernel ends the others before this one is gone (pid_namespaces(7))
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

// start starts the first process in a user namespace, as root too: there it has no say over this machine's own network.
// Only root can do without one, where the kernel grants none.
func (j Job) start(files []byte, region *os.File, console *console, cpu int) (*exec.Cmd, <-chan error, error) {
	var refused error
	for _, user := range []bool{true, false} {
		if !user && os.Geteuid() != 0 {
			break
		}
		cmd := j.command(user)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(files), console, console, append([]*os.File{region}, j.Pass...)
		ended, err := launch(cmd, cpu)
		if err == nil {
			return cmd, ended, nil
		}
		if !forbidden(err) {
			return nil, nil, fmt.Errorf("starting the guest's first process: %w", err)
		}
		if refused == nil {
			refused = err
		}
	}
	return nil, nil, &RefusedError{refused}
}

// forbidden tells the answers of clone(2) and user_namespaces(7) to those who may not have a namespace, or no further one,
// from other errors.
func forbidden(err error) bool {
	for _, known := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func (j Job) command(user bool) *exec.Cmd {
	cmd := exec.Command(j.Program, j.Args...)
	cmd.Env = []string{passedVariable + "=" + strconv.Itoa(len(j.Pass))}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if user {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// launch starts the command on a goroutine that keeps its thread, because the process inherits that thread's CPU and
// dies with it (PR_SET_PDEATHSIG).
func launch(cmd *exec.Cmd, cpu int) (<-chan error, error) {
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's CPU mask may have changed
		var err error
		if cpu != anyCPU {
			err = vm.PinThread(cpu)
			// What cannot be set is not an error: the lateness of the attempts tells whether the guest got its turns.
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
		}
		if err == nil {
			err = cmd.Start()
		}
		if err == nil && cpu != anyCPU {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(strconv.Itoa(niceness)), 0)
		}
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// niceness lets the guest go before this machine's ordinary programs, where that is allowed (setpriority(2)): it is mostly
// idle, and an attempt that starts late is a measurement lost. A VM's CPU has the same.
const niceness = -10

// console passes the guest's lines on and keeps the last ones. Output and errors come one after the other (os/exec uses
// one pipe for equal writers).
type console struct {
	line func(string)
	tail []string
	rest []byte
}

// Write takes a piece of the guest's output.
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

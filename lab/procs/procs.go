// Package procs starts, stops, signals and logs the programs of the lab: control plane, subjects, load balancers,
// probe workers and pods.
package procs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec describes a program to start.
type Spec struct {
	Name string // base name of the log file in the supervisor's directory
	Path string
	Args []string
	Env  []string // added to the lab's own environment
	// OnlyEnv leaves the lab's own environment out.
	OnlyEnv bool
	Dir     string // working directory; the lab's own when empty
	// Enter calls start, for example inside a namespace; nil starts the program in the lab's own namespace.
	Enter func(start func() error) error
	Group *Group // control group in which the program begins; nil for the lab's own
	// TimerSlack is how late the kernel may end the program's sleeps, so that several end at once; 0 for its default, 50 µs.
	TimerSlack time.Duration
	// Stdin, Stdout and Stderr override the defaults: no input, and output to the log.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Supervisor owns the programs of one lab. They die with the lab, even after kill -9 (parent-death signal).
type Supervisor struct {
	logs string
	mu   sync.Mutex
	live []*Process
}

// New creates the log directory and returns a supervisor.
func New(logs string) (*Supervisor, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("creating the log directory of the lab's programs: %w", err)
	}
	return &Supervisor{logs: logs}, nil
}

// Process is one started program.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	err  error
}

// Start starts a program and returns at once. Done is closed when the program has ended.
func (s *Supervisor) Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(s.LogFile(spec.Name), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = append(os.Environ(), spec.Env...), spec.Dir
	if spec.OnlyEnv {
		cmd.Env = spec.Env
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.Stdin, spec.Stdout, spec.Stderr
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	group, err := spec.Group.Open()
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	if group != nil {
		defer group.Close()
	}
	cmd.SysProcAttr = attributes(group)
	p := &Process{Name: spec.Name, cmd: cmd, log: log, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(spec, started)
	if err := <-started; err != nil {
		log.Close()
		return nil, fmt.Errorf("starting %s (%s): %w", spec.Name, spec.Path, err)
	}
	s.mu.Lock()
	s.live = append(s.live, p)
	s.mu.Unlock()
	return p, nil
}

// run starts the program and waits for its end on a goroutine that keeps its thread: the kernel sends the
// parent-death signal when the thread that forked ends (prctl(2), PR_SET_PDEATHSIG).
func (p *Process) run(spec Spec, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := setTimerSlack(spec.TimerSlack); err != nil {
		started <- fmt.Errorf("setting its timer slack: %w", err)
		return
	}
	enter := spec.Enter
	if enter == nil {
		enter = func(start func() error) error { return start() }
	}
	if err := enter(p.cmd.Start); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	p.log.Close()
	close(p.done)
}

// LogFile returns the path of the log of the program with that name.
func (s *Supervisor) LogFile(name string) string { return filepath.Join(s.logs, name+".log") }

// StopAll sends SIGTERM to every program, and SIGKILL to those that still run after grace.
func (s *Supervisor) StopAll(grace time.Duration) {
	s.mu.Lock()
	live := s.live
	s.live = nil
	s.mu.Unlock()
	for _, p := range live {
		resume(p)
		_ = p.Signal(syscall.SIGTERM)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for i := len(live) - 1; i >= 0; i-- {
		select {
		case <-live[i].done:
		case <-timer.C:
			for _, p := range live {
				_ = p.Signal(syscall.SIGKILL)
			}
			timer.Reset(grace)
			<-live[i].done
		}
	}
}

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// ExitText describes how the program ended.
func (p *Process) ExitText() string {
	if p.Running() {
		return "still running"
	}
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}

// Err returns the exit error; nil while the program runs and after exit status 0.
func (p *Process) Err() error {
	if p.Running() {
		return nil
	}
	return p.err
}

// Signal sends a signal to the program's process group; it does nothing after the program has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	err := signalGroup(p.cmd.Process, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Stop sends SIGTERM, waits for grace, then sends SIGKILL and waits for the end.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	return p.StopWith(ctx, syscall.SIGTERM, grace)
}

// StopWith is Stop with a signal other than SIGTERM.
func (p *Process) StopWith(ctx context.Context, sig syscall.Signal, grace time.Duration) error {
	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing %s after %s: %w", p.Name, grace, err)
	}
	<-p.done
	return nil
}

// Tail returns the last n lines of a program's log, for error messages.
func (s *Supervisor) Tail(name string, n int) string { return s.TailFrom(name, 0, n) }

// TailFrom is Tail of what the log has from a length on.
func (s *Supervisor) TailFrom(name string, from int64, n int) string {
	data, err := os.ReadFile(s.LogFile(name))
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(data[min(from, int64(len(data))):]), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Package procs starts, stops, kills, freezes and logs every program of the lab: control plane, subjects, balancers,
// probe workers and pods. It is not for programs outside the lab.
package procs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec says how to start a program.
type Spec struct {
	Name string // names the log file: Name.log in the supervisor's folder
	Path string
	Args []string
	Env  []string // added to the lab's own environment
	// Enter runs the start of the program, for example inside a namespace; nil starts it in the lab's own.
	Enter func(start func() error) error
	// Stdin and Stdout override the defaults: no input, and output to the log.
	Stdin  io.Reader
	Stdout io.Writer
}

// Supervisor owns the programs of one lab. Programs die with it, also after kill -9 of the lab (parent-death signal).
type Supervisor struct {
	logs string
	mu   sync.Mutex
	live []*Process
}

// New returns a supervisor that keeps its log files in the folder logs, which it makes.
func New(logs string) (*Supervisor, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder for the logs of the lab's programs: %w", err)
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

// Start starts a program and returns at once; its end closes Done.
func (s *Supervisor) Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(s.LogFile(spec.Name), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.Stdin, spec.Stdout, log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{Name: spec.Name, cmd: cmd, log: log, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(spec.Enter, started)
	if err := <-started; err != nil {
		log.Close()
		return nil, fmt.Errorf("starting %s (%s): %w", spec.Name, spec.Path, err)
	}
	s.mu.Lock()
	s.live = append(s.live, p)
	s.mu.Unlock()
	return p, nil
}

// run starts the program and waits for its end on one goroutine that keeps its thread: the parent-death signal is sent
// when the thread that forked ends, not the process (prctl(2), PR_SET_PDEATHSIG).
func (p *Process) run(enter func(func() error) error, started chan<- error) {
	lockThread()
	if err := ownSlack(); err != nil {
		started <- fmt.Errorf("setting the slack of its timers: %w", err)
		return
	}
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

// LogFile is where the output of the program of that name goes.
func (s *Supervisor) LogFile(name string) string { return filepath.Join(s.logs, name+".log") }

// StopAll ends every program: SIGTERM, then SIGKILL for those that are still there after grace.
func (s *Supervisor) StopAll(grace time.Duration) {
	s.mu.Lock()
	live := s.live
	s.live = nil
	s.mu.Unlock()
	for _, p := range live {
		_ = p.Signal(syscall.SIGCONT)
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

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// ExitText says how the program ended, in words.
func (p *Process) ExitText() string {
	if p.Running() {
		return "still running"
	}
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}

// Err is nil while the program runs and when it ended with status 0; else it says how it ended.
func (p *Process) Err() error {
	if p.Running() {
		return nil
	}
	return p.err
}

// Signal sends a signal to the program's process group. A program that has ended is not an error.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	err := syscall.Kill(-p.Pid(), sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Stop sends SIGTERM, waits for grace, then sends SIGKILL and waits for the end.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	return p.StopWith(ctx, syscall.SIGTERM, grace)
}

// StopWith is Stop with another signal than SIGTERM.
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
func (s *Supervisor) Tail(name string, n int) string {
	data, err := os.ReadFile(s.LogFile(name))
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

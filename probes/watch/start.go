package watch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hitless/hitless/probes"
)

// Worker is the command of the process that measures. It must call Work with the same options.
type Worker struct {
	Program string   // path
	Args    []string // without the program's name
	// Resume are the arguments that go on with a killed watch from any folder, with ResumeFlag and OutFlag; nil if none do.
	Resume []string
}

// The descriptors that a worker inherits.
const (
	stateFd   = 3 // the locked state file
	messageFd = 4 // the pipe for messages
)

// message is a line that the worker sends to the process that called Start.
type message struct {
	Progress string `json:"say,omitempty"`
	Ready    bool   `json:"ready,omitempty"` // the target may be changed
	Error    string `json:"error,omitempty"` // the worker ends before it is ready
}

// Start starts a watch of target with its results in dir, and returns when the target may be changed, after baseline and proof. progress
// receives lines of progress. After an error no process is left. Errors are a target that does not answer, a running watch in dir, and
// the record of a killed watch in dir. When ctx ends first, Start ends the watch and returns the error of ctx.
func Start(ctx context.Context, target, dir string, w Worker, progress func(string)) error {
	if _, err := probes.Monotonic(); err != nil { // nothing can be measured here
		return err
	}
	f, err := open(dir, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.lockForStart(); err != nil {
		return err
	}
	s := State{Phase: Starting, Target: target, Started: time.Now().Round(0)}
	if err := errors.Join(f.writeWorker(w), f.write(s)); err != nil {
		return err
	}
	if err := f.measure(ctx, w, os.O_TRUNC, progress); err != nil {
		return errors.Join(err, f.recordFailure(err))
	}
	return nil // only the worker holds the lock now
}

// measure launches the worker, and returns when the target may be changed. After an error the worker has ended.
func (f *file) measure(ctx context.Context, w Worker, log int, progress func(string)) error {
	messages, c, err := f.launch(w, log)
	if err != nil {
		return err
	}
	defer messages.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Process.Signal(syscall.SIGTERM) })() // fails only when it has ended
	return awaitReady(ctx, messages, c, f.dir, progress)
}

// WorkerFile has the command of a watch that Resume can go on with.
const WorkerFile = "watch.command"

// The flags that a worker gets when it is to go on with the record of a killed watch, and for the folder of that.
const (
	ResumeFlag = "--resume"
	OutFlag    = "--out"
)

// writeWorker keeps the command of a watch that can be resumed, and removes that of an earlier one.
func (f *file) writeWorker(w Worker) error {
	name := filepath.Join(f.dir, WorkerFile)
	if w.Resume == nil {
		if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(w.Resume)
	if err == nil {
		err = os.WriteFile(name, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("keeping the command of the watch: %w; give another folder with --out", err)
	}
	return nil
}

// Resume goes on with the watch in dir that was killed, in the same record. It returns when the worker measures again. After an error no
// process is left, and the record is as it was. Errors are a watch that runs or has ended, and one that cannot be resumed.
func Resume(ctx context.Context, dir, program string, progress func(string)) error {
	f, err := open(dir, false)
	if err != nil {
		return err
	}
	defer f.Close()
	free, err := f.lock()
	if err != nil {
		return err
	}
	s, err := f.read()
	switch {
	case !free:
		return fmt.Errorf("a watch is running in %s (%v): there is nothing to resume", dir, s)
	case err != nil:
		return err
	case !s.running():
		return fmt.Errorf("no watch was killed in %s: the last one, of %s, is %s; `hitless watch start` starts one", dir, s.Target, s.Phase)
	}
	w := Worker{Program: program}
	data, err := os.ReadFile(filepath.Join(dir, WorkerFile))
	if err == nil {
		err = json.Unmarshal(data, &w.Args)
	}
	if err != nil {
		return fmt.Errorf("the watch of %s cannot be resumed, because only those of clusters can: %w; `hitless watch stop --out %s` makes a report of its record", s.Target, err, dir)
	}
	out, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding the folder %s: %w; give its whole path with --out", dir, err)
	}
	w.Args = slices.DeleteFunc(w.Args, func(word string) bool { return strings.HasPrefix(word, OutFlag+"=") })
	w.Args = append(w.Args, OutFlag+"="+out, ResumeFlag)
	if err := f.measure(ctx, w, os.O_APPEND, progress); err != nil {
		return errors.Join(err, f.write(s))
	}
	return nil
}

// recordFailure writes why a watch did not start, unless its process has written it.
func (f *file) recordFailure(err error) error {
	s, unreadable := f.read()
	if unreadable != nil || !s.running() {
		return unreadable
	}
	s.Phase, s.Error = Failed, err.Error()
	return f.write(s)
}

// lockForStart takes the lock for a new watch. It returns an error if a watch is running, or if a killed one left its record.
func (f *file) lockForStart() error {
	free, err := f.lock()
	if err != nil {
		return err
	}
	s, err := f.read()
	switch {
	case !free:
		return fmt.Errorf("a watch is running in %s already (%v): end it with `hitless watch stop --out %s`, or give another folder with --out", f.dir, s, f.dir)
	case err != nil:
		return err
	case s.running():
		return fmt.Errorf("the last watch in %s (%v) was killed, or the machine went down, at about %s; "+
			"%s`hitless watch stop --out %s` makes a report of what it recorded, or give another folder with --out",
			f.dir, s, s.Changed.Local().Format(time.DateTime), f.resumeHint(), f.dir)
	}
	return nil
}

// resumeHint tells how a killed watch goes on; empty if it cannot.
func (f *file) resumeHint() string {
	if _, err := os.Stat(filepath.Join(f.dir, WorkerFile)); err != nil {
		return ""
	}
	return fmt.Sprintf("`hitless watch resume --out %s` goes on with it, ", f.dir)
}

// launch starts the worker in a new session (setsid). The flag of os.OpenFile says whether its log continues another one.
func (f *file) launch(w Worker, flag int) (messages *os.File, c *exec.Cmd, err error) {
	log, err := os.OpenFile(filepath.Join(f.dir, LogFile), os.O_WRONLY|os.O_CREATE|flag, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the log of the watch: %w; give another folder with --out", err)
	}
	defer log.Close()
	messages, sender, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("creating the pipe for the watch's messages: %w", err)
	}
	defer sender.Close()
	c = exec.Command(w.Program, w.Args...)
	c.Stdout, c.Stderr, c.ExtraFiles = log, log, []*os.File{f.File, sender}
	c.SysProcAttr = ownSession()
	if err := c.Start(); err != nil {
		_ = messages.Close()
		return nil, nil, fmt.Errorf("starting the process that measures: %w", err)
	}
	return messages, c, nil
}

// awaitReady reads the worker's messages until it is ready or has ended.
func awaitReady(ctx context.Context, messages io.Reader, c *exec.Cmd, dir string, progress func(string)) error {
	failure := ""
	for d := json.NewDecoder(messages); ; {
		var m message
		if err := d.Decode(&m); err != nil { // the worker's end closes the pipe
			break
		}
		switch {
		case m.Ready:
			return c.Process.Release()
		case m.Error != "":
			failure = m.Error
		default:
			progress(m.Progress)
		}
	}
	ended := c.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failure != "":
		return errors.New(failure)
	}
	return fmt.Errorf("the process that measures ended before the measurement: %v; the last line of its log: %s", ended, lastLine(filepath.Join(dir, LogFile)))
}

func lastLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return cmp.Or(string(lines[len(lines)-1]), "none")
}

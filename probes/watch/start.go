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
	"time"

	"golang.org/x/sys/unix"
)

// Worker is the process that measures: a call of Work with the same options.
type Worker struct {
	Program string   // its file
	Args    []string // without the program's name
}

// The descriptors that a worker inherits.
const (
	stateFd   = 3 // the locked state file
	messageFd = 4 // a pipe for words
)

// word is a line that the worker tells to who started it.
type message struct {
	Progress string `json:"say,omitempty"`
	Ready    bool   `json:"ready,omitempty"` // the change may be made
	Error    string `json:"error,omitempty"` // it ends without having got that far
}

// Start starts a watch of target with its results in dir, and returns when the change may be made: baseline and proof
// are over. say takes lines of progress. An error means that nothing is left running, and what was wrong: a target that
// does not answer, a watch that is running there already, one that was killed and whose record is still there. When ctx
// ends first, the watch is ended and the error is ctx's.
func Start(ctx context.Context, target, dir string, w Worker, say func(string)) error {
	f, err := open(dir, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.lockForStart(); err != nil {
		return err
	}
	s := State{Phase: Starting, Target: target, Started: time.Now().Round(0)}
	if err := f.write(s); err != nil {
		return err
	}
	words, c, err := f.launch(w)
	if err != nil {
		s.Phase, s.Error = Failed, err.Error()
		return errors.Join(err, f.write(s))
	}
	defer words.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Process.Signal(unix.SIGTERM) })() // fails only when it has ended
	if err := awaitReady(ctx, words, c, dir, say); err != nil {
		return errors.Join(err, f.recordFailure(err))
	}
	return nil // from here on the lock is the worker's alone
}

// failed notes why a watch did not start, unless its process could do that itself.
func (f *file) recordFailure(err error) error {
	s, unreadable := f.read()
	if unreadable != nil || !s.running() {
		return unreadable
	}
	s.Phase, s.Error = Failed, err.Error()
	return f.write(s)
}

// claim takes the lock for a new watch, unless there is one, or one that was killed and left its record.
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
		return fmt.Errorf("the last watch in %s (%v) did not end in order: it was killed, or the machine went down at about %s; "+
			"`hitless watch stop --out %s` makes a report of what it recorded, or give another folder with --out",
			f.dir, s, s.Changed.Local().Format(time.DateTime), f.dir)
	}
	return nil
}

// launch starts the worker in a session of its own.
func (f *file) launch(w Worker) (words *os.File, c *exec.Cmd, err error) {
	log, err := os.Create(filepath.Join(f.dir, LogFile))
	if err != nil {
		return nil, nil, fmt.Errorf("making the log of the watch: %w; give another folder with --out", err)
	}
	defer log.Close()
	words, tell, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pipe to the watch: %w", err)
	}
	defer tell.Close()
	c = exec.Command(w.Program, w.Args...)
	c.Stdout, c.Stderr, c.ExtraFiles = log, log, []*os.File{f.File, tell}
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		_ = words.Close()
		return nil, nil, fmt.Errorf("starting the process that measures: %w", err)
	}
	return words, c, nil
}

// listen takes the worker's words until it is ready or has ended.
func awaitReady(ctx context.Context, words io.Reader, c *exec.Cmd, dir string, say func(string)) error {
	told := ""
	for d := json.NewDecoder(words); ; {
		var w message
		if err := d.Decode(&w); err != nil { // the pipe ends with the worker
			break
		}
		switch {
		case w.Ready:
			return c.Process.Release()
		case w.Error != "":
			told = w.Error
		default:
			say(w.Progress)
		}
	}
	ended := c.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case told != "":
		return errors.New(told)
	}
	return fmt.Errorf("the process that measures ended before it could: %v; its last words: %s", ended, lastLine(filepath.Join(dir, LogFile)))
}

func lastLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return cmp.Or(string(lines[len(lines)-1]), "none")
}

package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"syscall"

	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
)

// Session measures until its context ends: session.Run, or one with the same contract.
type Session func(ctx context.Context, o session.Options) (*session.Result, error)

// Work runs the session until ctx ends, and writes the state, in the process that Start has started. Progress goes to log. It returns an
// error if the process was not started by Start.
func Work(ctx context.Context, o session.Options, run Session, log io.Writer) error {
	if !inherited(stateFd, messageFd) {
		return errors.New("this command needs the inherited state of a watch: run `hitless watch start`, which starts it")
	}
	signal.Ignore(syscall.SIGHUP)
	f := &file{os.NewFile(stateFd, StateFile), o.Out}
	defer f.Close()
	w := &worker{file: f, messages: os.NewFile(messageFd, "messages"), log: log}
	defer w.messages.Close()
	var err error
	if w.state, err = f.read(); err != nil {
		return w.fail(err)
	}
	w.state.Pid = os.Getpid()
	if err := f.write(w.state); err != nil {
		return w.fail(err)
	}
	return w.run(ctx, o, run)
}

// worker is a running watch.
type worker struct {
	file     *file
	messages *os.File
	log      io.Writer

	mu    sync.Mutex // the session calls from two goroutines
	state State
}

func (w *worker) run(ctx context.Context, o session.Options, run Session) error {
	o.EndHint = fmt.Sprintf("`hitless watch stop --out %s`", o.Out)
	o.Progress, o.OnSecond, o.OnMeasuring = w.progress, w.onSecond, w.onMeasuring
	_, err := run(ctx, o)                        // its result is in the folder, for Stop
	if err == nil && w.state.Phase == Starting { // ended before the proof
		err = errors.New("ended before the detector was proved: nothing was measured")
	}
	if err != nil {
		return w.fail(err)
	}
	w.state.Phase = Ended
	return w.file.write(w.state)
}

// fail reports an error in a message to Start, in the state for Stop, and in its result.
func (w *worker) fail(err error) error {
	w.state.Phase, w.state.Error = Failed, err.Error()
	w.send(message{Error: err.Error()})
	return errors.Join(err, w.file.write(w.state))
}

// send sends a message to Start. It ignores errors, because the watch continues without its caller.
func (w *worker) send(m message) {
	data, _ := json.Marshal(m) // strings and a bool: cannot fail
	_, _ = w.messages.Write(append(data, '\n'))
}

func (w *worker) progress(text string) {
	fmt.Fprintln(w.log, text)
	w.send(message{Progress: text})
}

// onMeasuring lets Start return.
func (w *worker) onMeasuring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Phase = Measuring
	w.writeState()
	w.send(message{Ready: true})
	_ = w.messages.Close()
}

func (w *worker) onSecond(s session.Second) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Failed() > 0 {
		fmt.Fprintln(w.log, s)
	}
	w.state.Attempts += s.Failed() + s.Classes[record.OK]
	w.state.Failures += s.Failed()
	w.writeState()
}

// writeState writes the state for Status. It only logs errors, because the verdict depends on the history alone.
func (w *worker) writeState() {
	if err := w.file.write(w.state); err != nil {
		fmt.Fprintln(w.log, err)
	}
}

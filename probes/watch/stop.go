package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"syscall"

	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Stop ends the watch in dir, waits for its end and returns its report. It also returns the report of a watch whose duration is over. For
// a killed watch it writes the report from the record; killed is then true and the verdict invalid. It returns an error if there is no
// report: no watch was running, or it failed. A record.DamageError is a record that was changed since.
func Stop(ctx context.Context, dir string) (r *session.Result, killed bool, err error) {
	f, err := open(dir, false)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	free, err := f.lock()
	if err == nil && !free {
		err = f.end(ctx)
	}
	if err != nil {
		return nil, false, err
	}
	s, err := f.read()
	if err != nil {
		return nil, false, err
	}
	return f.collect(s)
}

// end sends the watch SIGTERM, and takes the lock when it has ended.
func (f *file) end(ctx context.Context) error {
	s, err := f.read()
	if err != nil {
		return err
	}
	if s.Pid == 0 {
		return fmt.Errorf("a watch is starting in %s: wait until `hitless watch start` has returned", f.dir)
	}
	p, err := os.FindProcess(s.Pid) // refers to this process even if its number is reused later (pidfd_open(2))
	if err != nil {
		return fmt.Errorf("finding the process of the watch (%v): %w", s, err)
	}
	defer p.Release()
	if held, err := f.isLocked(); err != nil {
		return err
	} else if held { // otherwise the process has ended, and its number may be reused
		if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("sending SIGTERM to the watch (%v): %w; run this as the user who started it", s, err)
		}
	}
	over := make(chan error, 1)
	go func() { over <- f.lockWait() }()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the watch (%v) got SIGTERM and has not ended yet: %w", s, context.Cause(ctx))
	}
}

// collect returns the report of a watch that has ended.
func (f *file) collect(s State) (r *session.Result, killed bool, err error) {
	switch s.Phase {
	case Ended:
		r, err = f.sealed()
	case Starting, Measuring:
		r, err = f.recover(s)
		killed = true
	case Failed:
		return nil, false, fmt.Errorf("no watch is running in %s: the last one, of %s, ended at %s without a report: %s", f.dir, s.Target,
			s.Changed.Local().Format(time.DateTime), s.Error)
	case Collected:
		return nil, false, fmt.Errorf("no watch is running in %s: the last one, of %s, was stopped at %s, and its report is %s", f.dir, s.Target,
			s.Changed.Local().Format(time.DateTime), filepath.Join(f.dir, reports.PageFile))
	default:
		return nil, false, fmt.Errorf("no watch was started in %s; `hitless watch start HOST:PORT --out %s` starts one", f.dir, f.dir)
	}
	if err != nil {
		return nil, killed, err
	}
	s.Phase = Collected
	return r, killed, f.write(s)
}

// recover writes the report of a killed watch. Without a readable record the watch has failed, and the next one may start.
func (f *file) recover(s State) (*session.Result, error) {
	r, err := f.reportOfKilled()
	if err != nil {
		s.Phase, s.Error = Failed, fmt.Sprintf("the watch was killed, or the machine went down, and its record cannot be read: %v", err)
		return nil, errors.Join(errors.New(s.Error), f.write(s))
	}
	return r, nil
}

// sealed is the result of a watch that has ended.
func (f *file) sealed() (*session.Result, error) {
	report, h, err := reports.ReadSealed(os.DirFS(f.dir), f.dir, nil)
	if err != nil {
		return nil, err
	}
	origin, err := h.Origin()
	return &session.Result{Report: report, Origin: origin, Dir: f.dir}, err
}

// reportOfKilled writes the report of what a killed watch had recorded, beside an earlier run if there is one.
func (f *file) reportOfKilled() (r *session.Result, err error) {
	claim, err := reports.ClaimRun(f.dir, "hitless watch stop")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	if _, err := os.Stat(claim.Work()); errors.Is(err, os.ErrNotExist) {
		return f.sealed() // it was killed when it had its report
	}
	h, err := record.OpenHistory(claim.Work())
	if err != nil {
		return nil, err
	}
	r = &session.Result{}
	if r.Report, err = reports.WriteAll(claim.Work(), h); err != nil {
		return nil, err
	}
	if r.Origin, err = h.Origin(); err != nil {
		return nil, err
	}
	r.Dir, err = claim.Settle()
	return r, err
}

// Status returns the state of the watch that runs in dir. Its error describes the last watch if none is running.
func Status(dir string) (State, error) {
	f, err := open(dir, false)
	if err != nil {
		return State{}, err
	}
	defer f.Close()
	held, err := f.isLocked()
	if err != nil {
		return State{}, err
	}
	s, err := f.read()
	if err != nil || held {
		return s, err
	}
	if s.running() {
		return s, fmt.Errorf("no watch is running in %s: the last one (%v) was killed, or the machine went down, at about %s; "+
			"%s`hitless watch stop --out %s` makes a report of what it recorded", f.dir, s, s.Changed.Local().Format(time.DateTime), f.resumeHint(), f.dir)
	}
	if s.Phase == Ended {
		return s, fmt.Errorf("no watch is running in %s: the last one, of %s, ended by itself at %s; `hitless watch stop --out %s` gives its verdict",
			f.dir, s.Target, s.Changed.Local().Format(time.DateTime), f.dir)
	}
	_, _, err = f.collect(s) // returns an error in all other phases
	return s, err
}

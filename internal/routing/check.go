//go:build linux

package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// Check runs a case and returns what it saw, with the outcome that is wanted.
func (w *Testbed) Check(q Case, want string) (record.Check, error) {
	protocol, to, err := w.family.resolve(q.Target)
	if err != nil {
		return record.Check{}, fmt.Errorf("the case %s: %w", q.Name, err)
	}
	c := record.Check{Client: q.Client, Target: protocol + " " + to.String(), Want: want, Source: q.Source}
	switch {
	case protocol == "check":
		c.Got = w.healthCheck(to)
	case protocol == "sctp" && w.sctp != nil:
		c.Got = record.Unsupported
	default:
		c.Got, c.Seen, c.SeenElsewhere = w.measure(q.Client, protocol, to)
	}
	return c, nil
}

// changeWithin is the time that a proxy has for a change, and drainWithin for one that waits for drains.
const (
	serveWithin  = time.Minute
	changeWithin = time.Minute
	drainWithin  = 5 * time.Minute
)

// WaitFor checks a case until it holds or its time is over, and returns the last check.
func (w *Testbed) WaitFor(ctx context.Context, q Case, want string, within time.Duration) (c record.Check, err error) {
	for deadline := time.Now().Add(within); ; {
		if c, err = w.Check(q, want); err != nil || Holds(c) || time.Now().After(deadline) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return c, context.Cause(ctx)
		case <-time.After(time.Second): // interval of the checks
		}
	}
}

// Served is the first case that holds when a proxy has programmed the Services.
var Served = Case{Name: "the first Service is served", Client: "c", Target: "cluster/1:80", Want: "a b r"}

// Before is what holds without a proxy: a check that always passes would prove nothing.
var Before = Case{Name: "no proxy", Client: "client", Target: "lb/1:80", Want: "dropped"}

// Config is what a run of all checks needs.
type Config struct {
	Dir      string
	Family   Family
	Boot     topology.Config // of the node: OwnKernel and Files count
	Program  string          // hitless, whose `guest ask` makes the requests of some hosts (Ask); needed by subjects with a CNI plugin
	Subject  subject.Config  // its programs, environment, recorder and clock
	Progress func(checks int)
}

// Run makes a testbed, starts the proxy and records each check. Checks that do not hold are no errors.
func Run(ctx context.Context, c Config) (err error) {
	w, err := Open(ctx, c.Dir, c.Family, c.Boot)
	defer func() { err = errors.Join(err, w.Close()) }()
	if err != nil {
		return err
	}
	if got, err := w.Check(Before, Before.Want); err != nil || !Holds(got) {
		return fmt.Errorf("before a proxy was started the Services are reachable (%+v): the checks would prove nothing: %w", got, err)
	}
	w.program = c.Program
	if err := w.Start(ctx, c.Subject); err != nil {
		return err
	}
	if _, err := w.WaitFor(ctx, Served, Served.Want, serveWithin); err != nil {
		return err
	}
	// A proxy that does not follow the node's zone fails the checks of hints.
	if _, err := w.WaitFor(ctx, zoneHints, zoneHints.Want, changeWithin); err != nil {
		return err
	}
	r := recorder{c, w, 0}
	for _, q := range Cases {
		if err := r.check(ctx, q, 0); err != nil {
			return err
		}
	}
	for _, change := range Changes {
		if err := change.Apply(w); err != nil {
			return err
		}
		for _, q := range change.Cases {
			within := changeWithin
			if q.WaitForDrain {
				within = drainWithin
			}
			if err := r.check(ctx, q, within); err != nil {
				return err
			}
		}
	}
	return nil
}

// recorder records checks.
type recorder struct {
	Config
	w *Testbed
	n int
}

func (r *recorder) check(ctx context.Context, q Case, within time.Duration) error {
	if q.Own || q.Both && r.Family != IPv4 {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	got, err := r.w.WaitFor(ctx, q, q.Promise(), within)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %s from %s: %s", q.Name, got.Target, got.Client, got.Got)
	r.Subject.Recorder.Event(record.Event{At: r.Subject.Now(), Node: nodeName, Object: q.Name, Text: text, Body: got})
	r.n++
	r.Progress(r.n)
	return nil
}

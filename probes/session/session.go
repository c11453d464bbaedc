// Package session measures one target from here while something changes it: an undisturbed baseline with a proof of the
// detector, then for as long as it is told to, and at the end the same history and reports as every other run.
//
// It knows nothing of what it measures and disturbs nothing: who changes the target, and when, is not its business. It
// needs no privilege, runs by the real clock, and adds load only at the rate that it is told.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Scenario is the name under which the measurement stands in reports.
const Scenario = "probe"

// Options is what to measure. Zero values take the lane's defaults.
type Options struct {
	Target       string        // HOST:PORT; a name is looked up once, at the start
	Protocol     string        // see probes.Lane
	Policy       string        // likewise
	Close        string        // likewise
	Path         string        // likewise
	Rate         float64       // attempts per second; default 100
	DelayedAfter time.Duration // see probes.Lane
	Source       netip.Prefix  // see probes.Lane.SourcePrefix
	Duration     time.Duration // of the measurement, after baseline and proof; 0 is until the context ends
	Record       string        // RecordAll (default) or record.RecordThinned
	Out          string        // folder for the results; what an earlier run left there is replaced
	Command      string        // the call that this is, for the record
	EndHint      string        // what ends it, in words for who reads the progress; default Ctrl-C
	Progress     func(string)  // takes a line of progress
	OnMeasuring  func()        // is called when the target may be changed, unless nil
	OnSecond     func(Second)  // takes each second's outcomes, unless nil; from a goroutine of its own
}

// RecordAll records every attempt by itself.
const RecordAll = "all"

// defaultRate is that of `hitless run`.
const defaultRate = 100

// Lane ids and names of a session.
const (
	measuredID = 1
	canaryID   = 2
	canaryName = "canary"
	freshID    = 3 // of the new connections beside a lane that keeps some
)

// The proof: the canary begins with the measured lane, on the same engine to the same target, and is made deaf twice.
// The second fault begins after the SYNs that the first cost were sent again, a second later.
var proof = []struct{ at, long time.Duration }{
	{500 * time.Millisecond, 20 * time.Millisecond},
	{1800 * time.Millisecond, 200 * time.Millisecond},
}

const (
	// The canary's slowest rate, so that the shortest fault meets an attempt for certain.
	canaryRate = 100
	baseline   = 3500 * time.Millisecond // the canary's time, and more than a second after the last fault
	lead       = 200 * time.Millisecond  // how far ahead of its first attempt a lane is ordered
)

// Run measures until the duration is over or the context ends, whichever comes first, and writes the reports. The end of
// the context is an orderly one: attempts under way are awaited, and the verdict stands. Before the proof is over there
// is nothing that a verdict could rest on, so such a run is invalid.
//
// An error means that nothing was measured, or that the record could not be written.
func Run(ctx context.Context, o Options) (*analysis.Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	lane, err := o.lane(ctx)
	if err != nil {
		return nil, err
	}
	canary := canaryLane(lane)
	if err := preflight(lane, canary); err != nil {
		return nil, err
	}
	if err := clearOut(o.Out); err != nil {
		return nil, err
	}
	if err := o.writeHost(time.Now()); err != nil {
		return nil, err
	}
	r, err := o.record(lane)
	if err != nil {
		return nil, err
	}
	if err := probes.ShortTimeSlices(); err != nil { // starts are later then on a busy machine, which the report judges
		o.Progress(err.Error())
	}
	m, err := startMeter(r, o.OnSecond)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	measured := o.measure(ctx, m, lane, canary)
	if err := errors.Join(measured, m.end(), r.Close()); err != nil {
		return nil, err
	}
	h, err := record.OpenHistory(o.Out)
	if err != nil {
		return nil, err
	}
	return reports.WriteAll(o.Out, h)
}

// canaryOf is the lane that proves the detector on the same target. Lanes that keep a socket are proved by new ones: what
// is proved lies below both.
func canaryLane(l probes.Lane) probes.Lane {
	if overUDP(l) {
		l.Protocol = probes.ProtocolUDPFresh
	} else {
		l.Protocol = probes.ProtocolTCPNew
	}
	l.Connections, l.StallAfter, l.Fresh = 0, 0, 0
	l.ID, l.Name, l.Control = canaryID, canaryName, true
	l.Rate, l.InFlight = max(l.Rate, canaryRate), 0
	l.Policy = probes.PolicyFresh
	return l
}

// preflight refuses what would make the probe itself cause failures.
func preflight(lane, canary probes.Lane) error {
	limits, err := probes.LocalLimits()
	if err != nil {
		return err
	}
	// The canary is soon over: over the time for which five-tuples are kept apart, this is its rate.
	canary.Rate *= baseline.Seconds() / probes.FreshFor.Seconds()
	var refused []error
	for _, reason := range probes.Preflight([]probes.Lane{lane, canary}, limits) {
		refused = append(refused, errors.New(reason))
	}
	if len(refused) > 0 {
		return fmt.Errorf("not started, because the probe itself would cause failures: %w", errors.Join(refused...))
	}
	return nil
}

// measure runs the lanes and records what they do. It returns early, without an error, when the context ends.
func (o Options) measure(ctx context.Context, m *meter, lane, canary probes.Lane) error {
	m.phase("setup")
	begin := m.now() + lead
	for _, l := range []probes.Lane{lane, canary} {
		if err := m.start(l, begin); err != nil {
			return err
		}
	}
	o.Progress(fmt.Sprintf("baseline of %s and proof of the detector; change nothing yet", lane.Target))
	m.phase("baseline")
	proved, err := m.prove(ctx, begin)
	if err == nil {
		err = m.orders.Stop(canary.ID, m.now())
	}
	if err == nil && proved {
		err = o.measureChange(ctx, m, begin+baseline)
	} else if err == nil {
		o.Progress("ended before the detector was proved: there will be no verdict")
	}
	if err != nil {
		return err
	}
	at := m.now()
	m.phase("end")
	return m.orders.Stop(lane.ID, at)
}

// watch is the time in which the target may be changed.
func (o Options) measureChange(ctx context.Context, m *meter, begin time.Duration) error {
	m.phase("scenario")
	step := "watch " + o.Target
	m.step(step, "begin")
	endBy := cmp.Or(o.EndHint, "Ctrl-C")
	until, text := noEnd, fmt.Sprintf("measuring: make your change now; %s ends the measurement and writes the report", endBy)
	if o.Duration > 0 {
		until, text = begin+o.Duration, fmt.Sprintf("measuring for %v: make your change now; %s ends it earlier", o.Duration, endBy)
	}
	// What the change meets must not be an attempt of the baseline that was late.
	if _, err := m.sleep(ctx, m.now()+lead); err != nil {
		return err
	}
	o.Progress(text)
	if o.OnMeasuring != nil && ctx.Err() == nil {
		o.OnMeasuring()
	}
	if _, err := m.sleep(ctx, until); err != nil {
		return err
	}
	m.step(step, "end")
	return nil
}

// prove puts the known faults on the canary, and returns false when the context ended before all of them were over.
func (m *meter) prove(ctx context.Context, begin time.Duration) (bool, error) {
	for i, fault := range proof {
		from := begin + fault.at
		if err := m.orders.DropReplies(canaryID, from, from+fault.long); err != nil {
			return false, err
		}
		// The next fault is ordered only when this one can no longer meet an attempt, see probes.Engine.Deafen.
		over, err := m.sleep(ctx, from+fault.long+time.Second)
		if err != nil || !over {
			return false, err
		}
		for _, e := range probes.ReplyDropEvents(canaryName, fmt.Sprintf("proof-%d", i+1), from, from+fault.long) {
			m.record.Event(e)
		}
	}
	return m.sleep(ctx, begin+baseline)
}

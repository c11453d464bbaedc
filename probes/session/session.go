// Package session measures one target from this machine while somebody else changes it: a baseline with a proof of the detector, then
// the measurement, and at the end the history and reports of every other run.
//
// A session changes nothing and needs no privileges. It uses the real clock, and its load is the rate of its lanes.
package session

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Scenario is the scenario's name in reports.
const Scenario = "probe"

// Options has the target and the lane of a session. Zero values mean the lane's defaults.
type Options struct {
	Target       string             // HOST:PORT; a name is looked up once, at the start
	Protocol     string             // see probes.Lane
	Policy       string             // see probes.Lane
	Close        string             // see probes.Lane
	Path         string             // see probes.Lane
	Rate         float64            // attempts per second; default 100
	DelayedAfter time.Duration      // see probes.Lane
	Source       netip.Prefix       // see probes.Lane.SourcePrefix
	Duration     time.Duration      // of the measurement, after baseline and proof; 0 means until the context ends
	Record       string             // RecordAll (default) or record.RecordThinned
	Out          string             // folder for the results; those of an earlier run are replaced when there is a report
	Sign         ed25519.PrivateKey // signs the seal of the record; nil for none
	Command      string             // command line, for the record
	Words        []string           // of the command line, for host.json
	EndHint      string             // how the user ends the session, for progress; default Ctrl-C
	Progress     func(string)       // receives lines of progress
	OnMeasuring  func()             // called when the target may be changed, unless nil
	OnSecond     func(Second)       // receives each second's outcomes in another goroutine, unless nil
}

// RecordAll is the record that keeps single attempts.
const RecordAll = "all"

// defaultRate is the default rate of `hitless run`.
const defaultRate = 100

// Lane ids and names of a session.
const (
	measuredID = 1
	canaryID   = 2
	canaryName = "canary"
	freshID    = 3 // control lane of new connections, for a lane with lasting ones
)

// proof has the reply drops of the canary, which runs on the same engine to the same target. The second begins after the retransmission
// of the SYNs that met the first, which is 1 s later.
var proof = []struct{ at, long time.Duration }{
	{500 * time.Millisecond, 20 * time.Millisecond},
	{1800 * time.Millisecond, 200 * time.Millisecond},
}

const (
	// canaryRate is the canary's lowest rate, so that the shortest fault always meets an attempt.
	canaryRate = 100
	// Baseline is its length: more than 1 s longer than the end of the last fault.
	Baseline = 3500 * time.Millisecond
	// Lead is the time between the order of a lane and its first attempt.
	Lead = 200 * time.Millisecond
	// minAttempts is the least number of attempts after the baseline that a pass rests on: its sentence has their number.
	minAttempts = 1
)

// Run measures until the duration is over or the context ends, whichever is first, and writes the reports. When the context ends, Run
// waits for attempts in flight, and the verdict is valid. Without a complete proof the run is invalid.
//
// A session whose context ended before the scenario never replaces an earlier run.
//
// Run returns an error when nothing was measured, the record could not be written, or another run uses the folder.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Out == "" {
		return nil, errors.New("no folder for the results was given; name one with --out")
	}
	lane, err := o.lane(ctx)
	if err != nil {
		return nil, err
	}
	if err := Preflight(CanaryLane(lane, canaryID), lane); err != nil {
		return nil, err
	}
	claim, err := reports.ClaimRun(o.Out, o.Command)
	if err != nil {
		return nil, err
	}
	r, err := o.run(ctx, claim, lane)
	return r, errors.Join(err, claim.Close())
}

// Result is a session that has ended.
type Result struct {
	Report *analysis.Report
	Origin record.Origin
	Dir    string // with the reports: Options.Out, or a folder in it where an earlier run stays
}

func (o Options) run(ctx context.Context, claim *reports.Claim, lane probes.Lane) (*Result, error) {
	if err := CheckTarget(ctx, &lane); err != nil {
		return nil, err
	}
	canary := CanaryLane(lane, canaryID)
	out := o.Out
	removed, err := claim.Begin()
	if err != nil {
		return nil, err
	}
	o.Out = claim.Work()
	if removed {
		o.Progress(fmt.Sprintf("removed %s, which a run without an end had left", o.Out))
	}
	if err := o.WriteHost(o.Out, time.Now()); err != nil {
		return nil, err
	}
	r, err := o.record(ctx, lane)
	if err != nil {
		return nil, err
	}
	if err := probes.Prompt(); err != nil { // increases lateness on a busy machine, which a guard checks
		o.Progress(err.Error())
	}
	m, err := StartMeter(MeterConfig{Record: r, Second: o.OnSecond, Measured: func(id uint16) bool { return id == measuredID }})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	measured := o.measure(ctx, m, lane, canary)
	if err := errors.Join(measured, m.End(), r.Close()); err != nil {
		return nil, err
	}
	return Conclude(claim, out, o.Sign)
}

// Conclude judges and seals the record in the folder of a claim, and moves the results to their final place, dir.
func Conclude(claim *reports.Claim, dir string, key ed25519.PrivateKey) (result *Result, err error) {
	result = &Result{Dir: dir}
	if result.Report, result.Origin, err = reports.Seal(claim.Work(), key); err != nil {
		return nil, err
	}
	if !hasScenario(result.Report) {
		result.Dir, err = claim.Settle()
		return result, err
	}
	return result, claim.Finish()
}

// hasScenario reports whether a session got beyond its baseline.
func hasScenario(r *analysis.Report) bool {
	return slices.ContainsFunc(r.Events, func(e analysis.ReportEvent) bool { return e.Kind == record.KindPhase && e.Object == "scenario" })
}

// CanaryLane returns the lane that proves the detector on the target of another one. It uses new sockets also for lanes with lasting ones, because
// the proved code is common to both.
func CanaryLane(l probes.Lane, id uint16) probes.Lane {
	switch {
	case record.Datagrams(l.Protocol):
		l.Protocol = probes.ProtocolUDPFresh
	case l.Protocol != probes.ProtocolTCPDial:
		l.Protocol = probes.ProtocolTCPNew
	}
	l.Connections, l.StallAfter, l.Fresh = 0, 0, 0
	l.ID, l.Name, l.Control = id, canaryName, true
	l.Rate, l.InFlight = max(l.Rate, canaryRate), 0
	l.Policy = probes.PolicyFresh
	return l
}

// Preflight returns an error if the probes themselves would cause failures on this machine.
func Preflight(canary probes.Lane, lanes ...probes.Lane) error {
	limits, err := probes.LocalLimits()
	if err != nil {
		return err
	}
	// The canary runs for the baseline only: this is its average rate over the time in which five-tuples are not reused.
	canary.Rate *= Baseline.Seconds() / probes.FreshFor.Seconds()
	var refused []error
	for _, reason := range probes.Preflight(append(lanes, canary), limits) {
		refused = append(refused, errors.New(reason))
	}
	if len(refused) > 0 {
		return fmt.Errorf("not started, because the probe itself would cause failures: %w", errors.Join(refused...))
	}
	return nil
}

// measure runs the lanes and records phases and proof. It returns early, without an error, when the context ends.
func (o Options) measure(ctx context.Context, m *Meter, lane, canary probes.Lane) error {
	m.Phase("setup", record.Phase{})
	begin := m.Now() + Lead
	for _, l := range []probes.Lane{lane, canary} {
		if err := m.Start(l, begin, func(*record.Lane) {}); err != nil {
			return err
		}
	}
	o.Progress(fmt.Sprintf("baseline of %s and proof of the detector; change nothing yet", lane.Target))
	m.Phase("baseline", record.Phase{})
	proved, err := m.Prove(ctx, canary, begin)
	if err == nil {
		err = m.Stop(canary.ID, m.Now())
	}
	if err == nil && proved {
		err = o.measureChange(ctx, m, begin+Baseline)
	} else if err == nil {
		o.Progress("ended before the detector was proved: the run is invalid")
	}
	if err != nil {
		return err
	}
	at := m.Now()
	m.Phase("end", record.Phase{})
	return m.Stop(lane.ID, at)
}

// measureChange runs the phase in which the target may be changed.
func (o Options) measureChange(ctx context.Context, m *Meter, begin time.Duration) error {
	m.Phase("scenario", record.Phase{Attempts: minAttempts})
	step := "watch " + o.Target
	m.Step(step, record.StepBegin)
	endBy := cmp.Or(o.EndHint, "Ctrl-C")
	until, text := NoEnd, fmt.Sprintf("measuring: make your change now; %s ends the measurement and writes the report", endBy)
	if o.Duration > 0 {
		until, text = begin+o.Duration, fmt.Sprintf("measuring for %v: make your change now; %s ends it earlier", o.Duration, endBy)
	}
	// Late attempts of the baseline must not meet the change.
	if _, err := m.Sleep(ctx, m.Now()+Lead); err != nil {
		return err
	}
	o.Progress(text)
	if o.OnMeasuring != nil && ctx.Err() == nil {
		o.OnMeasuring()
	}
	if _, err := m.Sleep(ctx, until); err != nil {
		return err
	}
	m.Step(step, record.StepEnd)
	return nil
}

// Prove injects the reply drops into the canary, whose first attempt is due at begin. It returns at the end of the baseline, or false when
// the context ends first.
func (m *Meter) Prove(ctx context.Context, canary probes.Lane, begin time.Duration) (bool, error) {
	for i, fault := range proof {
		from := begin + fault.at
		if err := m.orders.DropReplies(canary.ID, from, from+fault.long); err != nil {
			return false, err
		}
		// The next fault is ordered once this one can no longer meet an attempt, see probes.Engine.DropReplies.
		over, err := m.Sleep(ctx, from+fault.long+time.Second)
		if err != nil || !over {
			return false, err
		}
		for _, e := range probes.ReplyDropEvents(canary.Name, fmt.Sprintf("proof-%d", i+1), from, from+fault.long) {
			m.Record.Event(e)
		}
	}
	return m.Sleep(ctx, begin+Baseline)
}

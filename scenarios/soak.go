package scenarios

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/values"
)

// The parameters of a soak alone; soakSignal is endSignal without STOP.
var (
	keepGoing    = newSwitch("keepGoing", "off", "whether the churn goes on after the first failed attempt")
	soakSignal   = newWord("signal", "TERM", "how the proxy ends at a restart: TERM or KILL", "TERM", "KILL")
	blipFor      = newDuration("away", "30s", "how long the API server is away at a blip", time.Second, 24*time.Hour)
	burstAt      = newParameter("burstAt", "any", "how long after a full minute of the run bursts begin, as what cron starts does; any for no such rule", burstTime)
	drainedPorts = newNumber("drainedPorts", "0", "ports of another Service whose one pod drains all the time, with connections open to each; 0 for none", 0, 1000)
	// RecordMode says whether the record of a run is thinned, see record.Thinner. Without it all is recorded.
	RecordMode = newWord("record", record.RecordThinned, "what is recorded of attempts: all of them, or thinned: one by one near failures and events, elsewhere counts and histograms",
		"all", record.RecordThinned)
)

// minuteTime is when bursts begin.
type minuteTime struct {
	any   bool          // at any time
	after time.Duration // after a full minute of the run
}

func burstTime(text string) (t minuteTime, err error) {
	if text == "any" {
		return minuteTime{any: true}, nil
	}
	if t.after, err = values.Duration(0, time.Minute)(text); err != nil {
		return t, fmt.Errorf("%w, or any", err)
	}
	return t, nil
}

// soak is days of ordinary life: what shows only after hours of churn, such as a graceful termination that hangs
// (kubernetes#71071, which took its finders days of repeated testing).
func soak() Scenario {
	return Scenario{
		Name:    "soak",
		Summary: "hours or days of churn: rollouts, proxy restarts, scaling, flaps and more, at random times of the seed's choice",
		Parameters: slices.Concat([]Parameter{laneParameters(), ChurnFor.Parameter}, churnRates(), []Parameter{
			keepGoing.Parameter,
			watchFor.withHelp("when an attempt has failed and the churn does not go on: how long the proxies have to get over it before they are restarted"),
			soakSignal.Parameter,
			downtime.withHelp("how long a node is without its proxy at a restart"),
			unreadyFor.withHelp("how long a pod stays unready at a flap"),
			offFor.Parameter,
			blipFor.Parameter,
			changeRate.withHelp("changes of endpoints in a second of a burst"),
			burstFor.Parameter,
			burstAt.Parameter,
			drainedPorts.Parameter,
			// With one pod fewer than nodes a rollout always finds a node for the next pod, though pods keep apart.
			Replicas.withDefault("2"),
			// What asks again and again is what days of virtual time cost; each still gives its answer well within the time that
			// a pod has to end, so that nothing is lost that a faster one would have kept.
			readinessPeriod.withDefault("1m"),
			CheckInterval.withDefault("25s"),
			CheckFall.withDefault("2"),
			shutdownDelay.withDefault("60s"),
			GracePeriod.withDefault("90s"),
			idleCollects.withDefault("off"),
			settle.withDefault("1m"),
			RecordMode.Parameter,
		}),
		Steps: soakSteps,
		Setup: func(p Params) Setup { return Setup{BriefCanary: true, Gated: flapRate.Of(p) > 0} },
		Run:   func(ctx context.Context, w *World) error { return w.soak(ctx) },
	}
}

// disturbance is one planned disturbance of a soak.
type disturbance struct {
	at   time.Duration // since the start of the churn
	name string
	do   func(ctx context.Context) error // returns nil when its effect was seen
}

// minEffectiveChurn is the share of the planned churn that must have had its effect: below it the soak shows nothing.
const minEffectiveChurn = 0.95

func (w *World) soak(ctx context.Context) error {
	w.run.tolerant = true
	busy := endpointRing{size: 4}
	if err := w.beginChurn(ctx, &busy); err != nil {
		return err
	}
	length := ChurnFor.Of(w.Params)
	w.recordProgress("churn of " + length.String() + ": " + w.Params.churnText(length))
	if err := w.runChurn(ctx, length, w.planChurn(length, &busy)); err != nil {
		return err
	}
	if w.endedByFailure() { // whether it passes by itself, and if not, whether a restart cures it
		return w.restartAfterFailure(ctx)
	}
	return nil
}

// runChurn does what is planned, each at its time or as soon as the one before is done, and lets the time run out.
func (w *World) runChurn(ctx context.Context, length time.Duration, planned []disturbance) error {
	p := &progress{begin: w.Clock.Now(), length: length}
	for _, c := range planned {
		if err := w.sleepUntil(ctx, p, c.at); err != nil {
			return err
		}
		if w.endedByFailure() {
			break
		}
		p.due++
		if w.tryStep(ctx, c.name, "", c.do) {
			p.done++
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
	if err := w.sleepUntil(ctx, p, length); err != nil {
		return err
	}
	return w.Step(ctx, p.text(), "", func(context.Context) error {
		if w.endedByFailure() {
			return nil // a lostEvent was seen, whatever became of the rest
		}
		return p.enough()
	})
}

// progress is how far a soak is.
type progress struct {
	begin, length time.Duration
	told          int // checkpoints
	done, due     int // disturbances
}

// enough is an error when the churn was too little to show anything.
func (p *progress) enough() error {
	if p.due == 0 || float64(p.done) < minEffectiveChurn*float64(p.due) {
		return fmt.Errorf("below %.0f %%: the soak shows nothing", 100*minEffectiveChurn)
	}
	return nil
}

func (p *progress) text() string {
	return fmt.Sprintf("%d of %d planned disturbances had their effect", p.done, p.due)
}

// checkpointEvery is after which time a soak says how far it is; what was recorded until then is kept, whatever happens
// to the rest of the run.
const checkpointEvery = time.Hour

// failureCheckInterval is how long after the first failed attempt a soak goes on at most before it ends.
const failureCheckInterval = time.Minute

// sleepUntil lets time pass until an instant of the churn or the failure that ends the soak, with a checkpoint after each hour on the way.
func (w *World) sleepUntil(ctx context.Context, p *progress, until time.Duration) error {
	for !w.endedByFailure() {
		now := w.Clock.Now() - p.begin
		if hour := time.Duration(p.told+1) * checkpointEvery; hour <= min(now, until) {
			p.told++
			w.recordProgress(fmt.Sprintf("%s %s of %s: %s, %d attempts failed", Checkpoint, hour, p.length, p.text(), w.Prober.Failures()))
			continue
		}
		if now >= until {
			return nil
		}
		next := min(until, now.Truncate(failureCheckInterval)+failureCheckInterval)
		if err := w.Clock.Sleep(ctx, next-now); err != nil {
			return err
		}
	}
	return nil
}

// recordProgress records how far the soak is, so that it is told while the run lasts.
func (w *World) recordProgress(text string) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), LegacyKind: record.KindLog, Object: Checkpoint, Text: text,
		Attrs: map[string]string{"program": "soak", "level": "info"}})
}

// Checkpoint is the object of the events that tell how far a soak is, and the first word of their text.
const Checkpoint = "checkpoint"

func (w *World) endedByFailure() bool { return !keepGoing.Of(w.Params) && w.Prober.Failures() > 0 }

// tryStep does what the run can go on without, and records whether its effect was seen: a subject that is ill must not keep the rest
// of the day from being seen.
func (w *World) tryStep(ctx context.Context, name, node string, do func(ctx context.Context) error) bool {
	record := func(state, text string) {
		w.Recorder.Event(record.Event{At: w.Clock.Now(), LegacyKind: record.KindStep, Node: node, Object: name, Text: text,
			Attrs: map[string]string{"state": state}})
	}
	record("begin", name)
	if err := do(ctx); err != nil {
		record("missed", fmt.Sprintf("%s had no effect: %v", name, err))
		return false
	}
	record("end", name+" done")
	return true
}

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
	keepGoing    = newSwitch("keepGoing", "off", "whether the churn continues after the first failed attempt")
	soakSignal   = newWord("signal", "TERM", "signal that ends the proxy at a restart: TERM or KILL", "TERM", "KILL")
	blipFor      = newDuration("away", "30s", "time without the API server at a blip", time.Second, 24*time.Hour)
	burstAt      = newParameter("burstAt", "any", "time from a full minute of the run to a burst, as for jobs of cron; any: at any time", burstTime)
	proofEvery   = newDuration("proofEvery", "6h", "time between two proofs of the detector during the churn; 0s: only the one before it", 0, 31*24*time.Hour)
	drainedPorts = newNumber("drainedPorts", "0", "ports of another Service whose one pod drains all the time, with connections open to each; 0 for none", 0, 1000)
	// RecordMode says whether the record of a run is thinned, see record.Thinner. Without it all is recorded.
	RecordMode = newWord("record", record.RecordThinned, "attempts in the record: all, or thinned (single attempts near failures and events, elsewhere counts and histograms)",
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

// soak is days of ordinary churn, for faults that show only after hours, such as a graceful termination that hangs
// (kubernetes#71071).
func soak() Scenario {
	return Scenario{
		Name:    "soak",
		Summary: "runs hours or days of churn: rollouts, proxy restarts, scaling, flaps and more, at random times that the seed determines",
		Parameters: slices.Concat([]Parameter{laneParameters(), ChurnFor.Parameter}, churnRates(), []Parameter{
			keepGoing.Parameter,
			watchFor.withHelp("time that the proxies have to recover after the failed attempt that ends the churn, before they are restarted"),
			soakSignal.Parameter,
			downtime.withHelp("time that a node is without its proxy at a restart"),
			unreadyFor.withHelp("time that a pod stays unready at a flap"),
			offFor.Parameter,
			blipFor.Parameter,
			changeRate.withHelp("changes of endpoints per second of a burst"),
			burstFor.Parameter,
			burstAt.Parameter,
			drainedPorts.Parameter,
			proofEvery.Parameter,
			// With fewer pods than nodes a rollout finds a node for the next pod.
			Replicas.withDefault("2"),
			// Frequent checks cost most of the run time of days of virtual time. These are still short enough within a
			// pod's grace period.
			readinessPeriod.withDefault("1m"),
			CheckInterval.withDefault("25s"),
			CheckFall.withDefault("2"),
			shutdownDelay.withDefault("60s"),
			GracePeriod.withDefault("90s"),
			idleCollects.withDefault("off"),
			// At the rate of a soak a shorter baseline has too few attempts on each path.
			baseline.withDefault("90s"),
			settle.withDefault("1m"),
			RecordMode.Parameter,
		}),
		Steps: soakSteps,
		Setup: func(p Params) Setup {
			return Setup{BriefCanary: true, Gated: flapRate.Of(p) > 0, Lasts: ChurnFor.Of(p), Least: ChurnFor.Of(p)}
		},
		Run: func(ctx context.Context, w *World) error { return w.soak(ctx) },
	}
}

// disturbance is one planned disturbance of a soak.
type disturbance struct {
	at   time.Duration // since the start of the churn
	name string
	do   func(ctx context.Context) error // returns nil when its effect was seen
}

// minEffectiveChurn is the share of the planned disturbances that must have an effect; a soak with less is invalid.
const minEffectiveChurn = 0.95

func (w *World) soak(ctx context.Context) error {
	w.run.tolerant = true
	busy := endpointRing{size: 4, family: w.Params.Family()}
	if err := w.beginChurn(ctx, &busy); err != nil {
		return err
	}
	length := ChurnFor.Of(w.Params)
	w.recordProgress("churn of " + length.String() + ": " + w.Params.churnText(length))
	if err := w.runChurn(ctx, length, w.planChurn(length, &busy)); err != nil {
		return err
	}
	if w.endedByFailure() { // shows whether the proxies recover alone, or after a restart
		return w.restartAfterFailure(ctx)
	}
	return nil
}

// runChurn performs the planned disturbances, each at its time or when the one before has ended, and lets the remaining
// time pass.
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
			return nil // the loss is the result of the soak
		}
		return p.enough()
	})
}

// progress is the progress of a soak.
type progress struct {
	begin, length time.Duration
	told          int // checkpoints
	proved        int // proofs of the detector
	done, due     int // disturbances
}

// enough returns an error when too few disturbances had an effect.
func (p *progress) enough() error {
	if p.due == 0 || float64(p.done) < minEffectiveChurn*float64(p.due) {
		return fmt.Errorf("below %.0f %%: the soak shows nothing", 100*minEffectiveChurn)
	}
	return nil
}

func (p *progress) text() string {
	return fmt.Sprintf("%d of %d planned disturbances had their effect", p.done, p.due)
}

// checkpointEvery is the time between two checkpoints. The record until a checkpoint is kept, whatever happens later.
const checkpointEvery = time.Hour

// failureCheckInterval bounds the time from the first failed attempt to the end of the soak.
const failureCheckInterval = time.Minute

// sleepUntil sleeps until a time of the churn or the failure that ends the soak. It records a checkpoint after each hour, and proves
// the detector again after each proofEvery.
func (w *World) sleepUntil(ctx context.Context, p *progress, until time.Duration) error {
	for !w.endedByFailure() {
		now := w.Clock.Now() - p.begin
		if hour := time.Duration(p.told+1) * checkpointEvery; hour <= min(now, until) {
			p.told++
			w.recordProgress(fmt.Sprintf("%s %s of %s: %s, %d attempts failed", Checkpoint, hour, p.length, p.text(), w.Prober.Failures()))
			if err := w.checkRecovery(ctx); err != nil {
				return err
			}
			continue
		}
		if every := proofEvery.Of(w.Params); every > 0 && time.Duration(p.proved+1)*every <= min(now, until) {
			p.proved++
			if err := w.proveAgain(ctx); err != nil {
				return err
			}
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

// recordProgress records a checkpoint.
func (w *World) recordProgress(text string) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: Checkpoint, Text: text,
		Body: record.Log{Program: "soak", Level: "info"}})
}

// Checkpoint is the object of the events for the progress of a soak, and the first word of their text.
const Checkpoint = "checkpoint"

func (w *World) endedByFailure() bool {
	return !keepGoing.Of(w.Params) && (w.Prober.Failures() > 0 || w.run.unrecovered)
}

// tryStep performs a disturbance and records whether it had an effect. A disturbance without effect does not end the
// soak.
func (w *World) tryStep(ctx context.Context, name, node string, do func(ctx context.Context) error) bool {
	tell := func(state record.StepState, text string) {
		w.Recorder.Event(record.Event{At: w.Clock.Now(), Node: node, Object: name, Text: text,
			Body: record.Step{State: state}})
	}
	tell(record.StepBegin, name)
	if err := do(ctx); err != nil {
		tell(record.StepMissed, fmt.Sprintf("%s had no effect: %v", name, err))
		return false
	}
	tell(record.StepEnd, name+" done")
	return true
}

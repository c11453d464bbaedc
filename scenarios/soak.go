package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/reports"
)

// RecordKey is the parameter that says whether the record of a run is thinned, see reports.Thinner. Without it all is recorded.
const RecordKey = "record"

// soak is days of ordinary life: what shows only after hours of churn, such as a graceful termination that hangs
// (kubernetes#71071, which took its finders days of repeated testing).
func soak() Scenario {
	perHour := numberIn(0, 3600)
	return Scenario{
		Name:    "soak",
		Summary: "hours or days of churn: rollouts, proxy restarts, scaling out and in, at random times of the seed's choice",
		Parameters: []Parameter{
			lanesParameter,
			{"for", "24h", "how long the churn lasts", durationIn(time.Minute, 31*24*time.Hour)},
			{"rolloutsPerHour", "10", "rollouts of the Deployment in an hour", perHour},
			{"restartsPerHour", "1", "restarts of one node's proxy in an hour", perHour},
			{"scalesPerHour", "1", "how often in an hour a pod is added and taken away again", perHour},
			{"keepGoing", "off", "whether the churn goes on after the first failed attempt", onOff},
			{"signal", "TERM", "how the proxy ends at a restart: TERM or KILL", oneOf("TERM", "KILL")},
			{"downtime", "2s", "how long a node is without its proxy at a restart", durationIn(0, time.Hour)},
			// With one pod fewer than nodes a rollout always finds a node for the next pod, though pods keep apart.
			{"replicas", "2", "pods of the Deployment", numberIn(1, 100)},
			// What asks again and again is what days of virtual time cost; each still gives its answer well within the time that
			// a pod has to end, so that nothing is lost that a faster one would have kept.
			{"readinessPeriod", "1m", "time between two readiness probes of a pod", durationIn(time.Second, time.Hour)},
			{"checkInterval", "25s", "time between two health checks of a node", durationIn(100*time.Millisecond, time.Hour)},
			{"checkFall", "2", "failed checks until a node is taken out", numberIn(1, 100)},
			{"shutdownDelay", "60s", "how long a backend goes on serving after SIGTERM", durationIn(0, time.Hour)},
			{"gracePeriod", "90s", "terminationGracePeriodSeconds of the pods", durationIn(0, 24*time.Hour)},
			{"idleCollection", "off", "whether a proxy written in Go collects its garbage every two minutes while it is idle; off: only beyond 192 MB", onOff},
			{"settle", "1m", "time of traffic after the scenario", durationIn(time.Second, time.Hour)},
			{RecordKey, reports.RecordThinned, "what is recorded of attempts: all of them, or thinned: one by one near failures and events, elsewhere counts and histograms",
				oneOf("all", reports.RecordThinned)},
		},
		BriefCanary: true,
		Run:         func(ctx context.Context, w *World) error { return w.soak(ctx) },
	}
}

// disturbance is one planned disturbance of a soak.
type disturbance struct {
	at   time.Duration // since the start of the churn
	name string
	do   func(ctx context.Context) error // returns nil when its effect was seen
}

// leastChurn is the share of the planned churn that must have had its effect: below it the soak shows nothing.
const leastChurn = 0.95

func (w *World) soak(ctx context.Context) error {
	w.tolerant = true
	length := w.Params.duration("for")
	return w.runChurn(ctx, length, w.planChurn(length))
}

// runChurn does what is planned, each at its time or as soon as the one before is done, and lets the time run out.
func (w *World) runChurn(ctx context.Context, length time.Duration, planned []disturbance) error {
	p := &progress{begin: w.Clock.Now(), length: length}
	for _, c := range planned {
		if err := w.letPass(ctx, p, c.at); err != nil {
			return err
		}
		if w.failedEnough() {
			break
		}
		p.due++
		if w.attemptChurn(ctx, c) {
			p.done++
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
	if !w.failedEnough() {
		if err := w.letPass(ctx, p, length); err != nil {
			return err
		}
	}
	return w.Step(ctx, p.text(), "", func(context.Context) error {
		if float64(p.done) < leastChurn*float64(p.due) {
			return fmt.Errorf("below %.0f %%: the soak shows nothing", 100*leastChurn)
		}
		return nil
	})
}

// progress is how far a soak is.
type progress struct {
	begin, length time.Duration
	told          int // checkpoints
	done, due     int // disturbances
}

func (p *progress) text() string {
	return fmt.Sprintf("%d of %d planned disturbances had their effect", p.done, p.due)
}

// checkpointEvery is after which time a soak says how far it is; what was recorded until then is kept, whatever happens
// to the rest of the run.
const checkpointEvery = time.Hour

// letPass lets time pass until an instant of the churn, with a checkpoint after each hour on the way.
func (w *World) letPass(ctx context.Context, p *progress, until time.Duration) error {
	for {
		next := min(until, time.Duration(p.told+1)*checkpointEvery)
		if err := w.Clock.Sleep(ctx, max(0, p.begin+next-w.Clock.Now())); err != nil {
			return err
		}
		if next < time.Duration(p.told+1)*checkpointEvery {
			return nil
		}
		p.told++
		w.Recorder.Event(reports.Event{At: w.Clock.Now(), Kind: reports.EventLog, Object: Checkpoint,
			Text:  fmt.Sprintf("%s %s of %s: %s, %d attempts failed", Checkpoint, next, p.length, p.text(), w.Failures()),
			Attrs: map[string]string{"program": "soak", "level": "info"}})
	}
}

// Checkpoint is the object of the events that tell how far a soak is, and the first word of their text.
const Checkpoint = "checkpoint"

func (w *World) failedEnough() bool { return !w.Params.on("keepGoing") && w.Failures() > 0 }

// planChurn spreads each kind of churn evenly over the time, each at a random instant of its share.
func (w *World) planChurn(length time.Duration) []disturbance {
	var all []disturbance
	for _, kind := range []struct {
		key, name string
		do        func(ctx context.Context, random *rand.Rand) error
	}{
		{"rolloutsPerHour", "rollout", func(ctx context.Context, _ *rand.Rand) error {
			if err := w.rollOut(ctx); err != nil {
				return err
			}
			w.rolledOut() // the balancer follows in its own time: one that cannot is a symptom to see
			return nil
		}},
		{"restartsPerHour", "restart of a proxy", func(ctx context.Context, random *rand.Rand) error {
			return w.restartProxy(ctx, w.Nodes[random.IntN(len(w.Nodes))])
		}},
		{"scalesPerHour", "scale out and in", func(ctx context.Context, _ *rand.Rand) error { return w.scaleOutAndIn(ctx) }},
	} {
		count := int(length.Hours() * float64(w.Params.number(kind.key)))
		for i := range count {
			share := length / time.Duration(count)
			at := time.Duration(i)*share + time.Duration(w.Random.Int64N(int64(share)))
			all = append(all, disturbance{at, fmt.Sprintf("%s %d of %d", kind.name, i+1, count),
				func(ctx context.Context) error { return kind.do(ctx, w.Random) }})
		}
	}
	slices.SortStableFunc(all, func(a, b disturbance) int { return cmp.Compare(a.at, b.at) })
	return all
}

// attemptChurn records a disturbance, and whether its effect was seen. One without effect is counted, and does not end
// the soak: a subject that is ill must not keep the rest of the day from being seen.
func (w *World) attemptChurn(ctx context.Context, c disturbance) bool {
	record := func(state, text string) {
		w.Recorder.Event(reports.Event{At: w.Clock.Now(), Kind: reports.EventStep, Object: c.name, Text: text,
			Attrs: map[string]string{"state": state}})
	}
	record("begin", c.name)
	if err := c.do(ctx); err != nil {
		record("missed", fmt.Sprintf("%s had no effect: %v", c.name, err))
		return false
	}
	record("end", c.name+" done")
	return true
}

// scaleOutAndIn adds a pod, waits until it serves, and takes one away again.
func (w *World) scaleOutAndIn(ctx context.Context) error {
	normal := w.main.replicas
	for _, replicas := range []int{normal + 1, normal} {
		err := w.act(ctx, "workload scale", w.main.name, "replicas", strconv.Itoa(replicas))
		if err == nil {
			err = w.see(ctx, "rolled-out", w.main.name, w.perPod())
		}
		if err != nil {
			w.main.replicas = normal
			return fmt.Errorf("scaling to %d: %w", replicas, err)
		}
	}
	return nil
}

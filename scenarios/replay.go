package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// ReplayName is the name of the scenario that performs a timeline.
const ReplayName = "timeline"

// Replay is the scenario that performs a timeline: each step at its time, or when the step before has ended. A timeline whose
// steps disturb nothing has the name of the scenario quiet.
func Replay(t *timeline.Timeline) Scenario {
	name := ReplayName
	if !slices.ContainsFunc(verbsOf(t), disturbs) {
		name = quiet().Name
	}
	return Scenario{
		Name:       name,
		Summary:    "runs the steps of a timeline",
		Parameters: replayParameters,
		Steps:      func(Params) []string { return verbsOf(t) },
		Lanes:      func(w *World) []LaneSpec { return w.timelineLanes(t) },
		Setup: func(p Params) Setup {
			return Setup{Gated: gatedPods.Of(p), BriefCanary: briefCanary.Of(p), Away: t.Away(), Lasts: t.Length(),
				Datagrams: slices.ContainsFunc(t.Lanes, func(s timeline.Step) bool { return record.Datagrams(s.Object) })}
		},
		Prepare: func(ctx context.Context, w *World) error {
			w.run.given = t.Given
			return w.makeGiven(ctx)
		},
		Run: func(ctx context.Context, w *World) error { return w.replay(ctx, t) },
	}
}

// givenPerStep is the number of objects that one step creates, so that the creation of a large recording shows its
// progress. Fewer objects are created without steps.
const givenPerStep = 5000

// makeGiven creates the objects that exist before any traffic.
func (w *World) makeGiven(ctx context.Context) error {
	made := 0
	for some := range slices.Chunk(w.run.given, givenPerStep) {
		makeSome := func(ctx context.Context) error {
			for _, s := range some {
				if err := w.makeObject(ctx, s); err != nil {
					return err
				}
			}
			return nil
		}
		if len(w.run.given) <= givenPerStep {
			return makeSome(ctx)
		}
		name := fmt.Sprintf("make objects %d to %d of %d", made+1, made+len(some), len(w.run.given))
		if err := w.Step(ctx, name, "", makeSome); err != nil {
			return err
		}
		made += len(some)
	}
	return nil
}

// replayParameters are the settings of other scenarios that are not part of their steps.
var replayParameters = []Parameter{
	laneParameters(),
	gatedPods.Parameter,
	briefCanary.Parameter,
	idleCollects.Parameter,
}

// The parameters of a replay alone.
var (
	gatedPods   = newSwitch("gated", "off", "whether the measured pods have a readiness gate, for pod ready and pod unready")
	briefCanary = newSwitch("briefCanary", "off", "whether the canary Service is deleted after the proof")
)

// verbsOf are the verbs of the steps, each once, in the order of their first use.
func verbsOf(t *timeline.Timeline) (verbs []string) {
	for _, s := range t.Steps {
		if !slices.Contains(verbs, s.Verb) {
			verbs = append(verbs, s.Verb)
		}
	}
	return verbs
}

// timelineLanes are the lanes that a timeline starts before the baseline. A lane that a step ends is partial.
func (w *World) timelineLanes(t *timeline.Timeline) (specs []LaneSpec) {
	for _, f := range w.families() {
		for _, s := range t.Lanes {
			spec := w.timelineLane(f, s)
			spec.Partial = slices.ContainsFunc(t.Steps, func(step timeline.Step) bool { return step.Verb == "lane stop" && step.Object == s.Object })
			specs = append(specs, spec)
		}
	}
	return specs
}

// replay performs the steps, each recorded as a step of the scenario. The time until the end is the step watch.
func (w *World) replay(ctx context.Context, t *timeline.Timeline) error {
	for i, s := range t.Steps {
		at := w.run.began + s.At
		if s.Verb == timeline.End {
			err := w.Step(ctx, "watch", "", func(ctx context.Context) error { return w.Clock.Sleep(ctx, max(0, at-w.Clock.Now())) })
			return cmp.Or(err, w.checkLosses(), w.checkAllBlocked())
		}
		if err := w.Clock.Sleep(ctx, max(0, at-w.Clock.Now())); err != nil {
			return err
		}
		err := w.Step(ctx, s.Name(), s.Node(), func(ctx context.Context) error { return w.replayStep(ctx, s) })
		if err != nil {
			return fmt.Errorf("line %d: %w", s.Line, err)
		}
		w.endRollout(s, t.Steps[i+1])
	}
	return errors.New("the timeline has no end")
}

// replayStep performs a step. A step that only awaits a condition never fails.
func (w *World) replayStep(ctx context.Context, s timeline.Step) error {
	err := w.perform(ctx, s)
	if err != nil && s.Optional() && ctx.Err() == nil {
		w.log("timeline", fmt.Sprintf("%s did not come about: %v", s.Action(), err))
		return nil
	}
	return err
}

// endRollout records the end of a rollout after the last step that waits for it.
func (w *World) endRollout(s, next timeline.Step) {
	if w.state().rolling == 0 {
		return
	}
	waits := s.Object == w.run.main.name && (s.Condition() == "rolled-out" || s.Condition() == "balanced")
	if waits && next.Condition() != "balanced" {
		w.recordRolloutEnd()
	}
}

// writeHead writes the head of the run's timeline: how the run was set up, without the settings of the subject.
func (w *World) writeHead(s Scenario) {
	j, err := w.journal()
	if err != nil {
		return
	}
	t := timeline.New()
	t.Nodes, t.Rate, t.Seed, t.Given = len(w.Nodes), w.Rate, w.Seed, w.run.given
	params := maps.Clone(w.Params)
	if s.setup(w.Params).Gated {
		params[gatedPods.Key] = "on"
	}
	if s.setup(w.Params).BriefCanary {
		params[briefCanary.Key] = "on"
	}
	for _, p := range (Scenario{Parameters: replayParameters}).AllParameters() {
		if value, has := params[p.Key]; has && value != p.Default && p.Key != TerminatingFallback.Key {
			t.Set = append(t.Set, timeline.Setting{Key: p.Key, Value: value})
		}
	}
	slices.SortFunc(t.Set, func(a, b timeline.Setting) int { return cmp.Compare(a.Key, b.Key) })
	if s.Lanes != nil {
		for _, l := range s.Lanes(w) {
			if l.Name == w.families()[0].Named(l.Protocol) { // the parameter family gives those of others
				t.Lanes = append(t.Lanes, laneStep(l))
			}
		}
	}
	j.Journal(t.Header())
}

// laneStep is the line of a lane in a timeline.
func laneStep(l LaneSpec) timeline.Step {
	s := timeline.Step{Verb: "lane start", Object: l.Protocol}
	if l.Connections > 0 {
		s.Args = append(s.Args, timeline.Arg{Key: "connections", Value: strconv.Itoa(l.Connections)})
	}
	s.Args = append(s.Args, timeline.Arg{Key: "rate", Value: strconv.FormatFloat(l.Rate, 'g', -1, 64)})
	return s
}

// closeClients closes the connections that are still open at the end.
func (w *World) closeClients() error {
	for _, name := range slices.Sorted(maps.Keys(w.state().connections)) {
		if err := w.closeClient(name); err != nil {
			return fmt.Errorf("closing the connections to %s: %w", name, err)
		}
	}
	return nil
}

// AttemptsIn is the least number of attempts of a replay on its measured lanes, each with the given attempts a second.
func AttemptsIn(t *timeline.Timeline, p Params, rate float64) float64 {
	length := t.Length() + baseline.Of(p) + settle.Of(p)
	attempts := rate * float64(len(p.laneNames())) * length.Seconds()
	for _, s := range t.Lanes {
		attempts += length.Seconds() * cmp.Or(atRate(s), rate)
	}
	return attempts * float64(len(p.Family().Each()))
}

func atRate(s timeline.Step) float64 {
	rate, _ := strconv.ParseFloat(s.Get("rate"), 64)
	return rate
}

// timelineLane is the lane to the measured Service that a step describes.
func (w *World) timelineLane(f record.Family, s timeline.Step) LaneSpec {
	spec := w.protocolLane(f, s.Object, cmp.Or(atRate(s), w.Rate))
	if s.Object == record.ProtocolLong {
		spec.Connections = s.Number("connections", spec.Connections)
	}
	return spec
}

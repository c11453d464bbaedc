package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Timeline is a timeline with the file that it was read from.
type Timeline struct {
	*timeline.Timeline
	File string
}

// ReadTimeline reads a timeline and the settings in it. Every error is a UsageError; those of the text begin with file:line.
func ReadTimeline(ctx context.Context, file string) (*Timeline, error) {
	text, err := input.Read(ctx, file, input.EventBytes)
	if err != nil {
		return nil, usagef("reading the timeline: %w", err)
	}
	t, err := timeline.Parse(file, text)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	if t.Seed == 0 {
		return nil, usagef("%s: seed 0: give a whole number other than 0", file)
	}
	if err := checkSettings(t, file); err != nil {
		return nil, err
	}
	return &Timeline{t, file}, nil
}

// checkSettings checks each setting, and then whether all fit together.
func checkSettings(t *timeline.Timeline, file string) error {
	scenario, all, last := scenarios.Replay(t), map[string]string{}, 0
	for _, s := range t.Set {
		if err := scenario.CheckValue(s.Key, s.Value); err != nil {
			return usagef("%s:%d: %w", file, s.Line, err)
		}
		all[s.Key], last = s.Value, s.Line
	}
	if _, err := scenario.Fill(all); err != nil {
		return usagef("%s:%d: %w", file, last, err)
	}
	return nil
}

// defaults sets options that the call leaves out.
func (t *Timeline) defaults(o *Options) {
	o.Scenario = scenarios.ReplayName
	if o.Nodes == 0 {
		o.Nodes = t.Nodes
	}
	if o.Rate == 0 {
		o.Rate = t.Rate
	}
	if o.Seed == 0 {
		o.Seed = t.Seed
	}
}

// scenario returns the scenario of the options, and adds a timeline to the plan.
func (o *Options) scenario(p *guest.Plan) (scenarios.Scenario, error) {
	if o.Scenario == scenarios.ReplayName && o.Timeline == nil {
		return scenarios.Scenario{}, errors.New("the scenario timeline needs a file: `hitless replay FILE`")
	}
	if o.Timeline == nil {
		return scenarios.Find(o.Scenario, guest.Offers(o.ControlPlane, o.Kernel))
	}
	here := *o.Timeline.Timeline
	here.Nodes, here.Rate, here.Seed = o.Nodes, o.Rate, o.Seed
	if line, err := here.Check(); err != nil {
		return scenarios.Scenario{}, fmt.Errorf("%s:%d: %w", o.Timeline.File, line, err)
	}
	if err := o.Timeline.checkSecondSubject(); err != nil {
		return scenarios.Scenario{}, err
	}
	there := &Timeline{&here, o.Timeline.File}
	var err error
	if p.Timeline, err = there.pack(); err != nil {
		return scenarios.Scenario{}, err
	}
	p.Objects = objectsOf(&here)
	if err := there.checkLab(o.ControlPlane); err != nil {
		return scenarios.Scenario{}, err
	}
	if s, needs := here.NeedsReplay(); needs && o.ControlPlane != record.ControlReplay {
		return scenarios.Scenario{}, fmt.Errorf("%s:%d: %s needs --controlplane replay: a real API server does not do such things when it is told to",
			o.Timeline.File, s.Line, s.Action())
	}
	return scenarios.Replay(&here), nil
}

// objectsOf counts the objects that a timeline makes or replaces.
func objectsOf(t *timeline.Timeline) (n int) {
	for _, s := range t.Steps {
		if s.Verb == "object apply" {
			n++
		}
	}
	return n + len(t.Given)
}

// pack returns the timeline as a plan has it, or an error if it is too large.
func (t *Timeline) pack() ([]byte, error) {
	packed, err := guest.PackTimeline(t.Timeline)
	if err == nil && len(packed) > maxTimeline {
		err = fmt.Errorf("%s: its %d steps and %d objects take %d bytes packed; a run has room for %d: record for less long, or fewer Services",
			t.File, len(t.Steps), len(t.Given), len(packed), maxTimeline)
	}
	return packed, err
}

// checkRoom returns an error if the attempts of a replay at the timeline's rate do not fit into its record.
func (t *Timeline) checkRoom() error {
	o := Options{Timeline: t, Rate: t.Rate}
	p, err := scenarios.Replay(t.Timeline).Fill(o.settings())
	if err != nil {
		return err
	}
	return o.checkRoom(p)
}

// maxTimeline is the maximum size of a packed timeline in bytes: a plan carries it in base64.
const maxTimeline = (vm.PlanSize - 64<<10) / 4 * 3

// checkSecondSubject checks that the second subject has its canonical name.
func (t *Timeline) checkSecondSubject() error {
	other := t.Other()
	if other == "" {
		return nil
	}
	spec, err := subject.Parse(other)
	if err == nil && spec.String() != other {
		err = fmt.Errorf("write it as %s", spec)
	}
	for _, s := range t.Steps {
		if err != nil && s.Get("to") == other {
			return fmt.Errorf("%s:%d: to=%s: %w", t.File, s.Line, other, err)
		}
	}
	return nil
}

// settings are the parameters of the options and of their timeline; the options take precedence.
func (o *Options) settings() map[string]string {
	if o.Timeline == nil {
		return o.Set
	}
	all := map[string]string{}
	for _, s := range o.Timeline.Set {
		all[s.Key] = s.Value
	}
	for key, value := range o.Set {
		all[key] = value
	}
	return all
}

// attemptBytes is an upper bound for the bytes of the attempts of measured lanes in the record.
func (o *Options) attemptBytes(p scenarios.Params) float64 {
	if o.Timeline != nil {
		// The run writes its own timeline too.
		return scenarios.AttemptsIn(o.Timeline.Timeline, p, o.Rate)*record.AttemptBytes + float64(len(o.Timeline.String()))
	}
	return p.Room(o.Rate)
}

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// plan resolves the options of a run in a lab. Every error is a UsageError.
func (o *Options) plan(ctx context.Context) (guest.Plan, subject.Spec, error) {
	spec, err := subject.Read(ctx, o.Subject)
	if err != nil {
		return guest.Plan{}, spec, UsageError{Reason: err}
	}
	p := guest.Plan{Scenario: o.Scenario, Seed: o.Seed, Subject: spec.String(), Exec: spec.Exec, ControlPlane: o.ControlPlane, Nodes: o.Nodes, Rate: o.Rate, Capture: o.Capture, Loop: o.Loop}
	if err := o.checkNumbers(); err != nil {
		return p, spec, err
	}
	if spec.Exec.RecipeOf() != nil && o.Programs == build.Released {
		return p, spec, usagef("--programs released: %s has no released programs outside of images; leave it out", spec)
	}
	if err := p.CheckSubject(guest.Offers(o.ControlPlane, o.Kernel)); err != nil {
		return p, spec, UsageError{Reason: err}
	}
	if guest.Unjudged(o.Scenario) {
		p.Parameters = o.Set
		return p, spec, o.checkStandalone(spec)
	}
	s, err := o.scenario(&p)
	if err != nil {
		return p, spec, UsageError{Reason: err}
	}
	p.Scenario = s.Name // of a timeline that disturbs nothing: quiet
	params, err := s.Select(guest.Offers(o.ControlPlane, o.Kernel), o.settings())
	if err != nil {
		return p, spec, UsageError{Reason: err}
	}
	if _, given := o.settings()[scenarios.TerminatingFallback.Key]; !given {
		params[scenarios.TerminatingFallback.Key] = spec.DefaultFallback()
	} else if err := spec.CheckFallback(params[scenarios.TerminatingFallback.Key]); err != nil {
		return p, spec, UsageError{Reason: err}
	}
	p.Parameters = params
	if err := o.checkParameters(s, params, spec); err != nil {
		return p, spec, err
	}
	o.expectEnd(s, params, o.Nodes)
	p.Next, err = o.next(ctx, params, spec)
	if err == nil && s.Blocks(params) {
		err = checkBlock(spec, p.Next)
	}
	return p, spec, err
}

// checkStandalone refuses parameters and clocks that a program without a scenario cannot use.
func (o *Options) checkStandalone(spec subject.Spec) error {
	if err := guest.CheckStandalone(o.Scenario, o.Set, spec); err != nil {
		return UsageError{Reason: err}
	}
	if guest.NeedsVirtualClock(o.Scenario) && (o.Kernel == "host" || o.Clock == "real") {
		return UsageError{Reason: errRealClock}
	}
	return nil
}

// checkParameters refuses parameters of a scenario that do not fit to the lab, to the machine or to the subject.
func (o *Options) checkParameters(s scenarios.Scenario, params scenarios.Params, spec subject.Spec) error {
	if err := s.CheckNodes(params, site.NodeNames(o.Nodes)); err != nil {
		return UsageError{Reason: err}
	}
	if err := s.CheckRate(params, o.Rate, o.Nodes); err != nil {
		return UsageError{Reason: err}
	}
	if err := o.checkJudges(params); err != nil {
		return err
	}
	if err := o.checkRoom(params); err != nil {
		return err
	}
	if err := spec.CheckFamily(params.Family()); err != nil {
		return UsageError{Reason: err}
	}
	if scenarios.TrafficPolicy.In(params) {
		if err := spec.CheckPolicy(scenarios.TrafficPolicy.Of(params)); err != nil {
			return UsageError{Reason: err}
		}
	}
	return nil
}

// checkBlock refuses steps that block a proxy if neither the subject nor the one that it changes to can be blocked. Of two subjects the step
// itself refuses the wrong one.
func checkBlock(spec subject.Spec, next *guest.Next) error {
	lack := spec.CheckBlock()
	if lack == nil {
		return nil
	}
	if next != nil {
		if other, err := subject.Parse(next.Subject); err == nil && other.CheckBlock() == nil {
			return nil
		}
	}
	return UsageError{Reason: lack}
}

// choosePrograms makes released programs an input of a run that uses upstream's programs. For other runs the choice means nothing.
func (o *Options) choosePrograms(p *guest.Plan) {
	upstream := p.ControlPlane == record.ControlKube || strings.HasPrefix(p.Subject, subject.KubeProxy+"@") || p.Next != nil && strings.HasPrefix(p.Next.Subject, subject.KubeProxy+"@")
	if o.Programs == build.Released && p.NeedsSubjects() && upstream {
		p.Programs = record.ProgramsReleased
		return
	}
	o.Programs = build.Built
}

// errRealClock refuses a measurement whose times would be those of a shared machine.
var errRealClock = errors.New("this scenario compares times of a proxy, which only the virtual clock of a VM makes comparable; leave --kernel and --clock out")

// RealClock reports whether an error of Check says that the run needs the virtual clock.
func RealClock(err error) bool { return errors.Is(err, errRealClock) }

// next is the subject that a scenario with the parameter `to` changes to. Its terminatingFallback is its own default unless the call
// sets one.
func (o *Options) next(ctx context.Context, params scenarios.Params, spec subject.Spec) (*guest.Next, error) {
	to, has := scenarios.To.Of(params), scenarios.To.In(params)
	if o.Timeline != nil {
		to = o.Timeline.Other()
		has = to != ""
	}
	if what := scenarios.Meddling.Of(params); has && what != "" && what != scenarios.Second { // a scenario that needs it for one thing only
		if to != "" {
			return nil, usagef("--set to=%s: scenario %s needs no other proxy with what=%s; it does with what=%s", to, o.Scenario, what, scenarios.Second)
		}
		has = false
	}
	switch {
	case !has:
		return nil, nil
	case to == scenarios.Itself && scenarios.Meddling.Of(params) == scenarios.Second:
		return nil, usagef("--set to=itself: a second proxy has to be another one")
	case to == "" && scenarios.Meddling.Of(params) == scenarios.Second:
		return nil, usagef("scenario %s needs to know what was left running: --set to=SUBJECT, such as --set to=kube-proxy@v1.37.1/iptables", o.Scenario)
	case to == "":
		return nil, usagef("scenario %s needs to know what the proxies become: --set to=SUBJECT, such as --set to=kube-proxy@v1.26.0/iptables", o.Scenario)
	}
	if to == scenarios.Itself {
		return nil, nil
	}
	next, err := subject.Read(ctx, to)
	switch {
	case err != nil:
		return nil, usagef("--set to=%s: %w", to, err)
	case next.Exec.RecipeOf() != nil:
		return nil, usagef("--set to=%s: it can be where a run begins (--subject), not what it changes to", to)
	case next.Exec != nil:
		return nil, usagef("--set to=%s: a proxy that a file describes can be where a run begins (--subject), not what it changes to", to)
	case next.String() == spec.String():
		return nil, usagef("--set to=%s: that is the subject already; its own upgrade is --set to=itself", to)
	}
	if err := next.CheckFamily(params.Family()); err != nil {
		return nil, UsageError{Reason: fmt.Errorf("--set to=%s: %w", to, err)}
	}
	if scenarios.TrafficPolicy.In(params) {
		if err := next.CheckPolicy(scenarios.TrafficPolicy.Of(params)); err != nil {
			return nil, UsageError{Reason: fmt.Errorf("--set to=%s: %w", to, err)}
		}
	}
	fallback, given := o.settings()[scenarios.TerminatingFallback.Key]
	if !given {
		fallback = next.DefaultFallback()
	} else if err := next.CheckFallback(fallback); err != nil {
		return nil, UsageError{Reason: err}
	}
	return &guest.Next{Subject: next.String(), Fallback: fallback}, nil
}

// maxAttemptBytes is how many bytes the attempts of a run may take in its record; the rest is for events and logs.
const maxAttemptBytes = 0.9 * vm.RegionSize

// checkRoom refuses a run whose record may outgrow its region, which would make the run invalid after hours.
func (o *Options) checkRoom(p scenarios.Params) error {
	bytes := o.attemptBytes(p)
	if bytes <= maxAttemptBytes {
		return nil
	}
	help := "run for less long; a soak with keepGoing=off and record=thinned needs less"
	if o.Timeline != nil {
		help = "replay less of it" + o.fittingRate(p)
	}
	return usagef("the attempts of this run may take %.0f MB, and its record has room for %.0f MB of them: "+
		"probe less often, name fewer lanes, or %s", bytes/1e6, maxAttemptBytes/1e6, help)
}

// fittingRate names the highest of a few rates at which the timeline fits, if any does.
func (o *Options) fittingRate(p scenarios.Params) string {
	for _, rate := range []float64{1000, 500, 200, 100, 50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1} {
		less := *o
		if less.Rate = rate; rate < o.Rate && less.attemptBytes(p) <= maxAttemptBytes {
			return fmt.Sprintf("; --rate %g is a rate at which it fits", rate)
		}
	}
	return ""
}

// objectTime is room for one object of a timeline, which is made before the traffic and reaches each proxy. A guest needs less.
const objectTime = 20 * time.Millisecond

// otherTime is room for one other Service, which each proxy programs at the beginning and after each of its restarts. Measured are
// 60 ms for the beginning.
const otherTime = 300 * time.Millisecond

// resolvedLab returns the lab's options with a deadline: the wall time that the run may take.
func (o *Options) resolvedLab(plan guest.Plan) site.LabOptions {
	l := o.LabOptions
	if l.Deadline > 0 {
		return l
	}
	l.Deadline = 15*time.Minute + time.Duration(scenarios.Others.Of(plan.Parameters))*otherTime // for the lab
	if length := scenarios.ChurnFor.Of(plan.Parameters); length > 0 {
		l.Deadline += length // slower than real time is a defect
	} else if o.Timeline != nil {
		l.Deadline += o.Timeline.Length() + time.Duration(plan.Objects)*objectTime
	} else {
		l.Deadline += time.Duration(scenarios.Rollouts.Of(plan.Parameters)) * 3 * time.Minute
	}
	return l
}

// checkJudges refuses a capture or a loop of a client that is not in the network between client and nodes.
func (o *Options) checkJudges(params scenarios.Params) error {
	place := cmp.Or(scenarios.ClientPlace.Of(params), scenarios.Outside)
	switch {
	case place == scenarios.Outside:
	case o.Capture:
		return usagef("--capture records the packets of a client outside of the cluster, and --set client=%s is another place; leave one of them out", place)
	case o.Loop:
		return usagef("--loop makes requests from outside of the cluster, and --set client=%s is another place; leave one of them out", place)
	}
	return nil
}

// Package run is the one function that runs a plan and judges it: the command line, the suites and the benchmarks all
// call it. It wires; it decides nothing about traffic.
package run

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/scenarios"
)

// Options is what a user asks for. The zero value of a field means its default.
type Options struct {
	Scenario     string
	Set          map[string]string
	Subject      string  // bundled
	ControlPlane string  // kube
	Kernel       string  // auto
	Clock        string  // auto
	Seed         int64   // 1
	Nodes        int     // 3
	Rate         float64 // 100 attempts a second
	Out          string  // folder; made when missing
	Binaries     string  // folder of ready programs, instead of building them
	Cache        string  // $HITLESS_CACHE, or hitless in the user's cache folder
	Program      string  // the hitless binary that the guest runs; this one when empty
	// StopAt is a time of the run at which it stops and looks at the kernels of the lab, instead of going on; 0 for none. It is
	// no part of the plan: until then the run is the same.
	StopAt time.Duration
	// Cold boots the guest anew, in place of beginning from one that was saved when its control plane was up. The history is the same.
	Cold        bool
	MemoryMB    int           // of the VM; what the control plane needs when 0
	Deadline    time.Duration // wall time at most; 15 minutes and the scenario's own length when 0
	OpenMetrics bool          // write openmetrics.txt too
	// Progress receives the events of the run, from several goroutines; nil for none.
	Progress func(progress.Event)
	Live     *Live // the live cluster to run on; nil for a lab
	// Timeline is what the scenario timeline does; ReadTimeline reads one. Its own nodes, rate, seed and settings count where
	// these options say nothing.
	Timeline *Timeline
}

// UsageError is a wrong call: exit code 2.
type UsageError struct{ error }

// Unwrap returns the reason.
func (e UsageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// IsUsage reports whether the error is a wrong call or an environment that cannot run what was asked (exit code 2).
func IsUsage(err error) bool { return errors.As(err, new(UsageError)) }

func (o *Options) fillDefaults() error {
	defaults := func(value *string, word string) {
		if *value == "" {
			*value = word
		}
	}
	if o.Timeline != nil {
		o.Timeline.defaults(o)
	}
	defaults(&o.Subject, "bundled")
	defaults(&o.ControlPlane, "kube")
	defaults(&o.Kernel, "auto")
	defaults(&o.Clock, "auto")
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Rate == 0 {
		o.Rate = 100
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	var err error
	if o.Cache == "" {
		if o.Cache, err = cache.Dir(); err != nil {
			err = usagef("%w", err)
		}
	}
	if o.Program == "" && err == nil {
		o.Program, err = os.Executable()
	}
	return err
}

// plan checks the call and makes the plan of it. Every error is a UsageError.
func (o *Options) plan() (guest.Plan, subject.Spec, error) {
	spec, err := subject.Parse(o.Subject)
	if err != nil {
		return guest.Plan{}, spec, UsageError{err}
	}
	p := guest.Plan{Scenario: o.Scenario, Seed: o.Seed, Subject: spec.String(), Exec: spec.Exec, ControlPlane: o.ControlPlane, Nodes: o.Nodes, Rate: o.Rate}
	if err := o.checkNumbers(); err != nil {
		return p, spec, err
	}
	if guest.Unjudged(o.Scenario) {
		p.Parameters = o.Set
		return p, spec, nil
	}
	s, err := o.find(&p)
	if err != nil {
		return p, spec, UsageError{err}
	}
	params, err := s.Select(guest.Offers(o.ControlPlane), o.settings())
	if err != nil {
		return p, spec, UsageError{err}
	}
	if _, given := o.settings()[scenarios.TerminatingFallback.Key]; !given {
		params[scenarios.TerminatingFallback.Key] = spec.DefaultFallback()
	} else if err := spec.CheckFallback(params[scenarios.TerminatingFallback.Key]); err != nil {
		return p, spec, UsageError{err}
	}
	p.Parameters = params
	if err := o.checkRoom(params); err != nil {
		return p, spec, err
	}
	p.Next, err = o.next(params, spec)
	return p, spec, err
}

// next is what a scenario with the key `to` puts in the subject's place. It has its own default of terminatingFallback unless
// the call says one.
func (o *Options) next(params scenarios.Params, spec subject.Spec) (*guest.Next, error) {
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
	next, err := subject.Parse(to)
	switch {
	case err != nil:
		return nil, usagef("--set to=%s: %w", to, err)
	case next.Exec != nil:
		return nil, usagef("--set to=%s: a proxy that a file describes can be where a run begins (--subject), not what it changes to", to)
	case next.String() == spec.String():
		return nil, usagef("--set to=%s: that is the subject already; its own upgrade is --set to=itself", to)
	}
	fallback, given := o.settings()[scenarios.TerminatingFallback.Key]
	if !given {
		fallback = next.DefaultFallback()
	} else if err := next.CheckFallback(fallback); err != nil {
		return nil, UsageError{err}
	}
	return &guest.Next{Subject: next.String(), Fallback: fallback}, nil
}

// mostRoom is how many bytes the attempts of a run may take in its record; the rest is for events and logs.
const mostRoom = 0.9 * vm.RegionSize

// checkRoom refuses a run whose record cannot be sure of its room: it would be invalid, after hours.
func (o *Options) checkRoom(p scenarios.Params) error {
	bytes := o.room(p)
	if bytes <= mostRoom {
		return nil
	}
	help := "run for less long; a soak with keepGoing=off and record=thinned needs less"
	if o.Timeline != nil {
		help = "replay less of it" + o.fittingRate(p)
	}
	return usagef("the attempts of this run may take %.0f MB, and its record has room for %.0f MB of them: "+
		"probe less often, name fewer lanes, or %s", bytes/1e6, mostRoom/1e6, help)
}

// fittingRate tells the highest rate of a few at which the timeline fits, if there is one.
func (o *Options) fittingRate(p scenarios.Params) string {
	for _, rate := range []float64{1000, 500, 200, 100, 50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1} {
		less := *o
		if less.Rate = rate; rate < o.Rate && less.room(p) <= mostRoom {
			return fmt.Sprintf("; --rate %g is a rate at which it fits", rate)
		}
	}
	return ""
}

func (o *Options) checkNumbers() error {
	switch {
	case o.Nodes < 1 || o.Nodes > 50:
		return usagef("--nodes %d: give 1 to 50", o.Nodes)
	case o.Rate <= 0 || o.Rate > 5000:
		return usagef("--rate %g: give a number above 0, at most 5000 attempts a second", o.Rate)
	case o.ControlPlane != "kube" && o.ControlPlane != "replay":
		return usagef("--controlplane %q: give kube or replay", o.ControlPlane)
	case o.Kernel != "auto" && o.Kernel != "vm" && o.Kernel != "host":
		return usagef("--kernel %q: give auto, host or vm", o.Kernel)
	case o.Clock != "auto" && o.Clock != "virtual" && o.Clock != "real":
		return usagef("--clock %q: give auto, virtual or real", o.Clock)
	case o.Kernel == "host" && o.Clock == "virtual":
		return usagef("--kernel host --clock virtual: this machine's kernel has the real clock only; use --kernel vm, or leave --clock out")
	}
	return nil
}

// command is the one command that repeats the run.
func (o *Options) command() string {
	named := o.Subject
	if file, is := strings.CutPrefix(named, "exec:"); is {
		named = "exec:" + filepath.Base(file) // where it stands is nothing that determines the run
	}
	words := []string{"hitless run", o.Scenario}
	if o.Timeline != nil {
		words = []string{"hitless replay", filepath.Base(o.Timeline.File)}
	}
	words = append(words, "--subject", named, "--seed", strconv.FormatInt(o.Seed, 10))
	return strings.Join(append(words, o.commonWords()...), " ")
}

// commonWords are the flags that runs and comparisons share, where they are not the defaults.
func (o *Options) commonWords() []string {
	var words []string
	if o.ControlPlane != "kube" {
		words = append(words, "--controlplane", o.ControlPlane)
	}
	if o.Kernel == "vm" || o.Kernel == "host" {
		words = append(words, "--kernel", o.Kernel)
	}
	if o.Clock == "real" {
		words = append(words, "--clock real")
	}
	nodes, rate := 3, 100.0
	if o.Timeline != nil {
		nodes, rate = o.Timeline.Nodes, o.Timeline.Rate
	}
	if o.Nodes != nodes {
		words = append(words, "--nodes", strconv.Itoa(o.Nodes))
	}
	if o.Rate != rate {
		words = append(words, "--rate", strconv.FormatFloat(o.Rate, 'g', -1, 64))
	}
	set := map[string]string{}
	// The timeline that a run writes leaves it out, so that it can be played against any subject; the command says it all the same.
	if value, given := o.settings()[scenarios.TerminatingFallback.Key]; given {
		set[scenarios.TerminatingFallback.Key] = value
	}
	maps.Copy(set, o.Set)
	for _, key := range sortedKeys(set) {
		words = append(words, "--set", key+"="+set[key])
	}
	return words
}

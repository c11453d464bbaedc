// Package run is the one function that runs a call and judges it: the command line, the suites and the benchmarks call it. It
// resolves what a user asks for, chooses the site, and leaves the rest to the site.
package run

import (
	"context"
	"crypto/ed25519"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/analysis/budget"
	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Options is what a user asks for. The zero value of a field means its default.
type Options struct {
	Scenario string
	Set      map[string]string
	Seed     int64   // 1
	Rate     float64 // 100 attempts per second
	Out      string  // folder; made when missing
	Program  string  // file of hitless for guests and probes; empty for the running one
	// Sign is the file of the private key that signs the seal of the record; empty for none.
	Sign string
	// Budget is the file of the budget that the run is judged by; empty for none.
	Budget string
	// OpenMetrics writes openmetrics.txt too.
	OpenMetrics bool
	// Progress receives the events of the run, from several goroutines; nil for none.
	Progress func(progress.Event)
	// Timeline is what the scenario timeline does; ReadTimeline reads one. Its nodes, rate, seed and settings are the defaults of
	// these options.
	Timeline *Timeline

	site.LabOptions
	// Live are the options of a live cluster; a lab is used where they are nil or name no cluster.
	Live *site.LiveOptions

	key    ed25519.PrivateKey // of Sign
	budget *budget.File       // of Budget
	entry  string             // id of the museum entry whose timeline runs; empty for none
	length time.Duration      // from the baseline on; 0 where it is not known
}

// The results and errors of runs are those of sites.
type (
	Result       = site.Result
	UsageError   = site.UsageError
	InvalidError = site.InvalidError
)

// MinimizedFile is the shortest timeline that fails as the run did, in the run's folder.
const MinimizedFile = site.MinimizedFile

// IsUsage reports whether the error is a wrong call or an environment that cannot run it (exit code 2).
func IsUsage(err error) bool { return errors.As(err, new(UsageError)) }

func usagef(format string, args ...any) error { return site.Usagef(format, args...) }

// Kind is a kind of site that a call can name.
type Kind string

// The kinds of sites. InKind is a live cluster that kind makes for the run.
const (
	InLab     Kind = "a lab"
	InCluster Kind = "a live cluster"
	InKind    Kind = "a cluster that kind makes"
)

// Site returns the kind of site that the options name. No other code decides that.
func (o Options) Site() Kind {
	switch {
	case o.Live == nil || !o.Live.Named():
		return InLab
	case o.Live.Kind != "":
		return InKind
	}
	return InCluster
}

// CheckKubeconfig reads the kubeconfig of a live cluster, and asks the cluster nothing. A file that cannot be read is a UsageError.
func (o Options) CheckKubeconfig() error {
	if o.Site() != InCluster {
		return nil
	}
	if _, err := cluster.Open(o.Live.Kubeconfig, o.Live.Context); err != nil {
		return UsageError{Reason: err}
	}
	return nil
}

// Run runs a call and judges its history. A UsageError means that nothing was run; an InvalidError that the run ended early. The
// record until then is in the folder.
func Run(ctx context.Context, o Options) (*Result, error) {
	defer o.report(progress.Event{Kind: progress.End})
	s, err := o.resolve(ctx)
	if err != nil {
		return nil, err
	}
	result, err := site.Execute(ctx, s)
	if err != nil || !o.OpenMetrics || result.Report == nil {
		return result, err
	}
	return result, writeOpenMetrics(result.Dir)
}

// PackGuest gets and packs all that a run in a VM needs, and boots nothing.
func PackGuest(ctx context.Context, o Options) (site.PackedGuest, error) {
	defer o.report(progress.Event{Kind: progress.End})
	o.Kernel, o.Live = "vm", nil
	s, err := o.resolve(ctx)
	if err != nil {
		return site.PackedGuest{}, err
	}
	guest, is := s.(*site.VM)
	if !is {
		return site.PackedGuest{}, usagef("these options give no run in a VM")
	}
	return guest.Pack(ctx)
}

// Check checks options without a run. Every error is a UsageError; scenarios.Lacking tells what the site lacks.
func Check(ctx context.Context, o Options) error {
	_, err := o.resolve(ctx)
	return err
}

// CheckAccess checks the rights of the user for runs on one live cluster, before the first of them. Every error is a UsageError. It names
// all verbs that the user lacks.
func CheckAccess(ctx context.Context, all []Options) error {
	var sites []site.Site
	for _, o := range all {
		s, err := o.resolve(ctx)
		if err != nil {
			return err
		}
		sites = append(sites, s)
	}
	return site.CheckAccess(ctx, sites)
}

// FewNodes reports whether an error of Run says that a live cluster has too few nodes for the run.
func FewNodes(err error) bool { return errors.As(err, new(*site.FewNodesError)) }

// SubjectLacks reports whether an error of Check says that the subject does not offer what the run needs.
func SubjectLacks(err error) bool { return errors.As(err, new(*subject.LackError)) }

// Touches reports whether a run changes objects of a live cluster that are not its own.
func Touches(o Options) bool {
	if o.Site() == InLab {
		return false
	}
	s, _, err := scenarios.Select(o.Scenario, site.LiveOffers, o.Set)
	return err == nil && s.Touches != nil
}

// resolve checks the options and returns the site of the run. Every error is a UsageError.
func (o *Options) resolve(ctx context.Context) (site.Site, error) {
	if err := o.fillDefaults(ctx); err != nil {
		return nil, err
	}
	if err := o.loadBudget(ctx); err != nil {
		return nil, err
	}
	if err := o.loadKey(ctx); err != nil {
		return nil, err
	}
	if o.Site() != InLab {
		if err := o.checkNumbers(); err != nil {
			return nil, err
		}
		if guest.Unjudged(o.Scenario) {
			return nil, usagef("%s has a node of its own, which only a lab offers; leave --kubeconfig out", o.Scenario)
		}
		live := *o.Live
		live.Nodes = o.Nodes
		if s, params, err := scenarios.Select(o.Scenario, site.LiveOffers, o.Set); err == nil { // NewCluster reports the error
			o.expectEnd(s, params, o.Nodes)
		}
		return site.NewCluster(o.call(), live)
	}
	plan, spec, err := o.plan(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.checkBudget(plan); err != nil {
		return nil, err
	}
	o.choosePrograms(&plan)
	return site.NewLab(ctx, o.call(), o.resolvedLab(plan), plan, spec)
}

// call is what the site needs to know of the options.
func (o *Options) call() site.Call {
	c := site.Call{Scenario: o.Scenario, Set: o.Set, Seed: o.Seed, Rate: o.Rate, Out: o.Out, Program: o.Program, DefaultNodes: 3, Length: o.length, Progress: o.Progress, Sign: o.key,
		Verb: []string{"hitless run", o.Scenario}}
	if o.budget != nil {
		c.Budget = o.budget.Budget
	}
	rate := 100.0
	if o.Timeline != nil {
		c.Verb, c.File = []string{"hitless replay"}, o.Timeline.File
		if o.entry != "" {
			c.Verb, c.File = []string{"hitless museum run", o.entry}, ""
		}
		c.DefaultNodes, rate = o.Timeline.Nodes, o.Timeline.Rate
	}
	if c.Out == "" {
		c.Out = filepath.Join("out", o.Scenario)
	}
	if o.Rate != rate {
		c.RateOption = []string{"--rate", strconv.FormatFloat(o.Rate, 'g', -1, 64)}
	}
	c.BudgetFile = o.Budget
	set := map[string]string{}
	// The timeline that a run writes has no terminatingFallback, so that it can be replayed against any subject.
	if value, given := o.settings()[scenarios.TerminatingFallback.Key]; given {
		set[scenarios.TerminatingFallback.Key] = value
	}
	maps.Copy(set, o.Set)
	for _, key := range sortedKeys(set) {
		c.SetOptions = append(c.SetOptions, key+"="+set[key])
	}
	return c
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// command is the command that repeats a run in a lab.
func (o *Options) command() string { return o.LabOptions.Command(o.call(), filepath.Base) }

// report passes an event on to the caller, if it wants any.
func (o *Options) report(e progress.Event) {
	if o.Progress != nil {
		o.Progress(e)
	}
}

// expectEnd adds the planned end of the run to the events with which its phases begin.
func (o *Options) expectEnd(s scenarios.Scenario, p scenarios.Params, nodes int) {
	o.length = s.Length(p, nodes)
	report := o.Progress
	if report == nil {
		return
	}
	o.Progress = func(e progress.Event) {
		if e.Phase != "" {
			if left, sure := s.Left(e.Phase, p, nodes); left > 0 {
				e.End, e.About = e.At+left, !sure
			}
		}
		report(e)
	}
}

func (o *Options) fillDefaults(ctx context.Context) error {
	defaults := func(value *string, word string) {
		if *value == "" {
			*value = word
		}
	}
	if o.Timeline != nil {
		o.Timeline.defaults(o)
	}
	defaults(&o.Subject, "bundled")
	defaults(&o.ControlPlane, record.ControlKube)
	defaults(&o.Kernel, "auto")
	defaults(&o.Clock, "auto")
	defaults((*string)(&o.Programs), string(build.Built))
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
		if o.Program, err = site.OwnProgram(ctx, o.Cache); err != nil {
			err = usagef("%w", err)
		}
	}
	return err
}

// loadKey reads the key that signs. Every error is a UsageError.
func (o *Options) loadKey(ctx context.Context) (err error) {
	if o.key, err = input.ReadKey(ctx, "--sign", o.Sign, record.SigningKey); err != nil {
		return UsageError{Reason: err}
	}
	return nil
}

// checkNumbers refuses values that no site accepts.
func (o *Options) checkNumbers() error {
	switch {
	case o.Nodes < 1 || o.Nodes > 50:
		return usagef("--nodes %d: give 1 to 50", o.Nodes)
	case !(o.Rate >= 1e-6 && o.Rate <= 5000): // the negation also catches NaN; lanes have the same lower bound
		return usagef("--rate %g: give a number from 0.000001 to 5000 attempts a second", o.Rate)
	case o.ControlPlane != record.ControlKube && o.ControlPlane != record.ControlReplay:
		return usagef("--controlplane %q: give kube or replay", o.ControlPlane)
	case o.Programs != build.Built && o.Programs != build.Released:
		return usagef("--programs %q: give built or released", o.Programs)
	case o.Kernel != "auto" && o.Kernel != "vm" && o.Kernel != "host":
		return usagef("--kernel %q: give auto, host or vm", o.Kernel)
	case o.Clock != "auto" && o.Clock != "virtual" && o.Clock != "real":
		return usagef("--clock %q: give auto, virtual or real", o.Clock)
	case o.Kernel == "host" && o.GuestKernel != "":
		return usagef("--kernel host --guest-kernel %s: on this machine's kernel there is no guest with another one; leave one of them out", o.GuestKernel)
	case o.Kernel == "host" && o.Clock == "virtual":
		return usagef("--kernel host --clock virtual: this machine's kernel has the real clock only; use --kernel vm, or leave --clock out")
	}
	choice, err := vm.ParseKernelChoice(o.GuestKernel)
	if err == nil {
		err = choice.Check()
	}
	if err != nil {
		return usagef("--guest-kernel: %w", err)
	}
	return nil
}

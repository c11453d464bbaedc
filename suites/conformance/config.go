package conformance

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Config is what a call of the suite asks for.
type Config struct {
	// Options are those of all runs: the subject and the lab, or a live cluster, and the seed. The suite sets the rest.
	Options   run.Options
	Selection Selection
	Out       string // folder of the results; out/conformance if empty
	DryRun    bool   // nothing runs, and nothing is written
	Bugs      []Bug  // of the subject, for the report; nil for none
	// Key signs the report; nil for none. Options.Sign is the file of the key that signs the runs.
	Key ed25519.PrivateKey
	// Execute makes a run; run.Run if nil.
	Execute func(context.Context, run.Options) (*run.Result, error)
	// Sum is the SHA-256 of hitless, for a report without runs; empty if unknown.
	Sum string
	// Command is the call without its selection and folders, for reports.
	Command string
	// Progress receives the events of runs, from several goroutines; nil for none.
	Progress func(progress.Event)

	session string // of the suite, the same in all of its processes
}

// DefaultOut is the folder of the results where none is given.
var DefaultOut = filepath.Join("out", "conformance")

func (c Config) withDefaults() Config {
	c.Out = cmp.Or(c.Out, DefaultOut)
	if c.Options.Subject = cmp.Or(c.Options.Subject, "bundled"); c.live() {
		c.Options.Subject = "" // the cluster has a proxy of its own
	}
	c.Options.ControlPlane = cmp.Or(c.Options.ControlPlane, record.ControlReplay)
	c.Options.Seed = cmp.Or(c.Options.Seed, 1)
	if c.Execute == nil {
		c.Execute = run.Run
	}
	return c
}

func (c Config) report(name string, e progress.Event) {
	if c.Progress != nil {
		progress.Named(name, c.Progress)(e)
	}
}

// options are the options of a run.
func (c Config) options(r *Run) run.Options {
	o := c.Options
	o.Scenario, o.Set, o.Rate, o.Out = r.Scenario, maps.Clone(r.Set), r.Rate, filepath.Join(c.Out, RunsDir, r.Name)
	if r.Nodes > 0 {
		o.Nodes = r.Nodes
	}
	return o
}

// live reports whether the runs take place on a live cluster.
func (c Config) live() bool { return c.Options.Site() != run.InLab }

// checkKubeconfig reads the kubeconfig of a live cluster, without a request.
func (c Config) checkKubeconfig() error {
	if !c.live() || c.Options.Live.Kubeconfig == "" {
		return nil
	}
	_, err := c.Options.Live.Open()
	return err
}

// checkAccess checks the rights that the runs of specs need on a live cluster, all at once.
func (c Config) checkAccess(ctx context.Context, planned []Planned) error {
	if !c.live() {
		return nil
	}
	var all []run.Options
	for _, p := range planned {
		if p.Skip == "" {
			all = append(all, c.options(p.Run))
		}
	}
	return run.CheckAccess(ctx, all)
}

// check refuses a call that no run can follow. The trial is a run of a scenario without needs.
func (c Config) check(ctx context.Context) error {
	err := run.Check(ctx, c.options(&Run{Name: "trial", Scenario: "quiet", Rate: 10}))
	if run.SubjectLacks(err) {
		return nil // of the defaults; each run has settings of its own
	}
	return err
}

// lacks returns why the site or the subject cannot do a run; empty if they can. Another error is a defect of the catalog.
func (c Config) lacks(ctx context.Context, r *Run) (why string, lacking []scenarios.Capability, err error) {
	o := c.options(r)
	err = run.Check(ctx, o)
	lacking = scenarios.Lacking(err)
	switch {
	case err == nil && run.Touches(o):
		return "scenario " + r.Scenario + " changes objects of the live cluster that are not its own; `hitless run` can, with --allow-disruption", nil, nil
	case err == nil:
		return "", nil, nil
	// A live cluster has entries of its own for some scenarios, with other keys: this run is not possible there.
	case len(lacking) > 0, run.SubjectLacks(err), run.RealClock(err), c.live() && run.IsUsage(err):
		return err.Error(), lacking, nil
	}
	return "", nil, fmt.Errorf("run %s of the catalog: %w", r.Name, err)
}

// fit is lacks for a run of which the site may be able to do a part: without the lanes of UDP, where its backends do not answer them.
// The error is a defect of the catalog.
func (c Config) fit(ctx context.Context, r *Run) (fitting *Run, why string, err error) {
	why, lacking, err := c.lacks(ctx, r)
	streams := slices.DeleteFunc(strings.Split(r.Set["lanes"], ","), isDatagrams)
	if err != nil || !slices.Contains(lacking, scenarios.DatagramBackends) || len(streams) == 0 {
		return r, why, err
	}
	part := *r
	part.Set = maps.Clone(r.Set)
	part.Set["lanes"] = strings.Join(streams, ",")
	if less, _, err := c.lacks(ctx, &part); less != "" || err != nil {
		return r, less, err
	}
	return &part, why, nil
}

func isDatagrams(lane string) bool { return lane == freshLane || lane == stickyLane }

// Planned is a selected spec, as a dry run shows it.
type Planned struct {
	Spec
	Skip string // why it will be skipped; empty if it will run
}

// Plan returns the selected specs of the shard. Every error is a wrong call.
func (c Config) Plan(ctx context.Context) (all []Planned, whole int, err error) {
	c = c.withDefaults()
	if err := c.check(ctx); err != nil {
		return nil, 0, err
	}
	specs, whole, err := c.Selection.Select(Catalog())
	if err != nil {
		return nil, 0, run.UsageError{Reason: err}
	}
	type fitted struct {
		run *Run
		why string
	}
	fits := map[*Run]fitted{}
	for _, r := range runs(specs) {
		part, why, err := c.fit(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		fits[r] = fitted{part, why}
	}
	single := ""
	if slices.ContainsFunc(specs, func(s Spec) bool { return s.Family == DualStack }) {
		if single, _, err = c.lacks(ctx, routingRun(routing.IPv6)); err != nil {
			return nil, 0, err
		}
	}
	for _, s := range specs {
		f := fits[s.Run]
		if s.Family == DualStack { // its run is that of IPv4, which the subject may be able to do alone
			f.why = cmp.Or(f.why, single)
		}
		if f.run != s.Run && !slices.ContainsFunc(s.lanes, isDatagrams) {
			f.why = "" // the lanes of this spec remain
		}
		s.Run = f.run
		all = append(all, Planned{s, f.why})
	}
	return all, whole, nil
}

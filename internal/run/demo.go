package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// demoScenario is what Demo runs behind the bundled proxier.
const demoScenario = "rollout"

// demoRollouts is how often each run of Demo rolls out: it is to be over soon.
const demoRollouts = "1"

// The wall time of the two runs of Demo on a machine that does nothing else, rounded up. The first one fetches the guest's kernel too.
const (
	firstTakes = time.Minute
	realTakes  = 90 * time.Second
)

// Demo runs a rollout behind the bundled proxier with the real control plane. While programs of that are missing, it makes them with a
// low priority, and meanwhile runs a rollout with the replay control plane, in the folder firstDir(o.Out). first gets the result of that
// run, or its error if it ended early. The fields Scenario, Set, Subject and ControlPlane of the options have no effect.
//
// The error of programs that cannot be made is a UsageError; the first result then stays. When ctx ends, nothing half-made is left.
func Demo(ctx context.Context, o Options, first func(*Result, error)) (*Result, error) {
	o.Scenario, o.Set, o.Subject, o.ControlPlane = demoScenario, map[string]string{scenarios.Rollouts.Key: demoRollouts}, "bundled", record.ControlKube
	if err := o.fillDefaults(ctx); err != nil {
		return nil, err
	}
	if err := Check(ctx, o); err != nil {
		return nil, err
	}
	b := &build.Builder{Cache: filepath.Join(o.Cache, "build"), Prebuilt: o.Binaries, Programs: o.Programs, Low: true, Progress: site.Building(o.Progress)}
	return demo{options: o, first: first, run: Run,
		expect: func(ctx context.Context) (build.Expected, error) { return b.Expect(ctx, build.ControlPlane...) },
		build:  func(ctx context.Context) error { _, err := b.Build(ctx, build.ControlPlane...); return err },
	}.both(ctx)
}

// demo is a call of Demo.
type demo struct {
	options Options
	first   func(*Result, error)
	run     func(context.Context, Options) (*Result, error)
	expect  func(context.Context) (build.Expected, error)
	build   func(context.Context) error
}

func (d demo) both(ctx context.Context) (*Result, error) {
	expected, err := d.expect(ctx)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	if len(expected.Missing) > 0 {
		d.options.report(progress.Event{Kind: progress.Message, Text: demoPlan(expected, d.options.Programs)})
		if err := d.firstResult(ctx); err != nil {
			return nil, err
		}
	}
	return d.run(ctx, d.options)
}

// firstDir is the folder of the first run of Demo, beside that of the second one.
func firstDir(out string) string { return filepath.Clean(out) + "-first" }

// demoPlan says how long Demo takes, and why.
func demoPlan(e build.Expected, p build.Programs) string {
	text := fmt.Sprintf("a first result, with the replay control plane, is there in about %s; meanwhile %s of the real control plane %s", site.About(firstTakes),
		site.TargetNames(e.Missing), map[build.Programs]string{build.Built: "are built, once", build.Released: "are downloaded, once"}[p])
	if e.Takes == 0 {
		return text + fmt.Sprintf("; after that the run with it takes about %s", site.About(realTakes))
	}
	// The first run takes one of the CPUs.
	wall := max(firstTakes, e.Takes+firstTakes/time.Duration(runtime.GOMAXPROCS(0))) + realTakes
	return text + fmt.Sprintf("; the result with it is there in about %s, if this machine does nothing else", site.About(wall))
}

// firstResult makes the programs of the real control plane, and runs with the replay one meanwhile. It returns when both have ended.
func (d demo) firstResult(ctx context.Context) error {
	building, stop := context.WithCancel(ctx)
	defer stop()
	built := make(chan error, 1)
	go func() { built <- d.build(building) }()
	o := d.options
	o.ControlPlane, o.Out = record.ControlReplay, firstDir(o.Out)
	o.MemoryMB = site.MemoryMB(record.ControlKube) // of the second run, which then resumes the same booted machine
	result, err := d.run(ctx, o)
	if err != nil && (ctx.Err() != nil || !errors.As(err, new(*InvalidError))) {
		stop()
		<-built // the builds remove their files
		return err
	}
	d.first(result, err)
	switch err := <-built; {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return usagef("%w\nthe run with the real control plane needs these programs; the first result, with the replay control plane, stays in %s", err, o.Out)
	}
	return nil
}

package site

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// addPrograms adds the control plane, the subjects and their tools to the image.
func (l *lab) addPrograms(ctx context.Context, img *vm.Image) error {
	plan, spec := l.plan, l.spec
	var targets []build.Target
	if plan.ControlPlane == record.ControlKube {
		targets = append(targets, build.ControlPlane...)
	}
	proxies, err := l.proxies()
	if err != nil {
		return err
	}
	for _, p := range proxies {
		for _, t := range proxyTargets(p) {
			if !slices.Contains(targets, t) {
				targets = append(targets, t)
			}
		}
	}
	builder := &build.Builder{Cache: filepath.Join(l.Cache, "build"), Prebuilt: l.Binaries, Programs: l.Programs, Progress: Building(l.Progress)}
	if err := l.addBuilt(ctx, img, builder, targets, proxies); err != nil {
		return err
	}
	if plan.Images {
		if err := l.addImages(ctx, img); err != nil {
			return err
		}
	}
	p := l.packer(img)
	if err := l.addPlanTools(ctx, p, proxies); err != nil {
		return err
	}
	if spec.Exec.RecipeOf() != nil {
		if err := followRecipe(ctx, builder, spec.Exec); err != nil {
			return err
		}
	}
	if spec.Exec != nil {
		if err := p.addExec(ctx, spec.Exec); err != nil {
			return err
		}
		if err := l.noteExec(ctx, spec.Exec); err != nil {
			return err
		}
	}
	if l.needsCompiler() {
		if err := l.addCompiler(ctx, p, spec.Exec); err != nil {
			return err
		}
	}
	l.tools = p.set
	return p.addLibraries()
}

// addBuilt builds the targets, and adds and notes their programs.
func (l *lab) addBuilt(ctx context.Context, img *vm.Image, builder *build.Builder, targets []build.Target, proxies []subject.Spec) error {
	if err := l.expect(ctx, builder, targets); err != nil {
		return UsageError{Reason: err}
	}
	binaries, err := builder.Build(ctx, targets...)
	if err != nil {
		return UsageError{Reason: err}
	}
	if thisPlatform().guests() { // else the programs cannot be asked here
		if err := checkFlags(ctx, proxies, binaries); err != nil {
			return err
		}
	}
	for _, b := range binaries {
		l.programs = append(l.programs, programFacts{b.Target.String(), string(cmp.Or(b.Source, build.Built)), b.Sha256, b.Notes})
		if err := img.AddWithSum(guestPath(b.Target, proxies), b.Path, 0o755, b.Sha256); err != nil {
			return err
		}
	}
	return nil
}

// addPlanTools adds the tools that the plan and its proxies need.
func (l *lab) addPlanTools(ctx context.Context, p *packer, proxies []subject.Spec) error {
	plan := l.plan
	if scenarios.BalancerKind.Of(plan.Parameters) == scenarios.HAProxy {
		if err := p.addTools(ctx, "haproxy"); err != nil {
			return err
		}
	}
	if plan.Loop {
		if err := p.addNamedTool(ctx, "curl"); err != nil {
			return err
		}
	}
	scenario, _ := plan.ScenarioEntry() // a benchmark has none, and needs no tools for one
	if slices.Contains(scenario.Needs(plan.Parameters), scenarios.NodeCommands) || slices.ContainsFunc(proxies, func(p subject.Spec) bool { return p.Name == subject.KubeProxy }) {
		return p.addProxyTools(ctx)
	}
	return nil
}

// noteExec notes the program of a subject that a file of the user describes, for host.json.
func (l *lab) noteExec(ctx context.Context, e *subject.Exec) error {
	if e.Recipe != nil {
		return nil // its programs are among those that were built
	}
	sum, err := cache.Sha256(ctx, e.Pack.Program)
	if err != nil {
		return Usagef("%s: %w", e.Pack.Source, err)
	}
	l.programs = append(l.programs, programFacts{Program: e.Name + "@" + e.Version, Source: "given", Sha256: sum})
	return nil
}

// Building returns a function that reports the steps of builds and of downloads as events; report may be nil.
func Building(report func(progress.Event)) func(build.Step) {
	if report == nil {
		return nil
	}
	return func(s build.Step) {
		e := progress.Event{Kind: progress.Message, Text: s.Text}
		if s.Bytes > 0 || s.Total > 0 {
			e.Kind, e.Transfer = progress.Download, progress.Transfer{Bytes: s.Bytes, Total: s.Total, Left: s.Left}
		}
		report(e)
	}
}

// expect reports how long the run will take, and why, if programs are to be built or downloaded first. The error is that of the builder.
func (l *lab) expect(ctx context.Context, b *build.Builder, targets []build.Target) error {
	e, err := b.Expect(ctx, targets...)
	if err != nil || len(e.Missing) == 0 {
		return err
	}
	text := TargetNames(e.Missing) + " are not in the cache: "
	if len(e.Missing) == 1 {
		text = TargetNames(e.Missing) + " is not in the cache: "
	}
	if e.Takes > 0 {
		text += fmt.Sprintf("the build takes about %s once, if this machine does nothing else (--programs released downloads instead)", About(e.Takes))
	} else {
		text += "it is downloaded once"
	}
	if l.Length > 0 {
		text += fmt.Sprintf("; the run after that about %s", About(l.Length+bootTakes))
	}
	l.message(text)
	return nil
}

// bootTakes is about the time until a guest that boots has its control plane.
const bootTakes = 30 * time.Second

// About is a length of time as text, rounded to 10 s.
func About(d time.Duration) string { return max(d.Round(10*time.Second), 10*time.Second).String() }

// TargetNames are targets as text; those of one version share it.
func TargetNames(targets []build.Target) string {
	var names []string
	for i, t := range targets {
		name := t.Name
		if i+1 == len(targets) || targets[i+1].Version != t.Version {
			name = t.String()
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// proxies are the subject and all other proxies of the plan. Every error is a UsageError.
func (l *lab) proxies() ([]subject.Spec, error) {
	all := []subject.Spec{l.spec}
	if l.plan.Next != nil {
		next, err := subject.Parse(l.plan.Next.Subject)
		if err != nil {
			return nil, UsageError{Reason: err}
		}
		all = append(all, next)
	}
	others, err := l.plan.DaemonSet.Specs()
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	return append(all, others...), nil
}

// checkFlags asks the programs of proxies whether they have the flags of the proxies' names. Every error is a UsageError.
func checkFlags(ctx context.Context, proxies []subject.Spec, binaries []build.Binary) error {
	for _, p := range proxies {
		i := slices.IndexFunc(binaries, func(b build.Binary) bool { return b.Target == mainTarget(p) })
		if i < 0 { // bundled, or described by a file
			continue
		}
		if err := p.CheckFlags(ctx, binaries[i].Path); err != nil {
			return UsageError{Reason: err}
		}
	}
	return nil
}

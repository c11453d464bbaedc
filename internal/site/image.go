package site

import (
	"cmp"
	"context"
	"path"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/scenarios"
)

// ControlPlaneTargets are the programs of the lab's control plane, in the version that hitless is tested with.
var ControlPlaneTargets = []build.Target{{Name: "kube-apiserver", Version: "v1.37.1"}, {Name: "kube-controller-manager", Version: "v1.37.1"},
	{Name: "kube-scheduler", Version: "v1.37.1"}, {Name: "etcd", Version: "v3.7.0"}}

// addPrograms adds the control plane, the subjects and their tools to the image.
func (l *lab) addPrograms(ctx context.Context, img *vm.Image) error {
	plan, spec := l.plan, l.spec
	var targets []build.Target
	if plan.ControlPlane == "kube" {
		targets = append(targets, ControlPlaneTargets...)
	}
	proxies, err := l.proxies()
	if err != nil {
		return err
	}
	for _, p := range proxies {
		if t := proxyTarget(p); p.Name == "kube-proxy" && !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	builder := &build.Builder{Cache: filepath.Join(l.Cache, "build"), Prebuilt: l.Binaries, Programs: l.Programs, Progress: l.building}
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
		name := b.Target.Name
		if i := slices.IndexFunc(proxies, func(p subject.Spec) bool { return proxyTarget(p) == b.Target }); i >= 0 {
			name = proxies[i].Binary()
		}
		if err := img.AddWithSum(path.Join(guest.Binaries, name), b.Path, 0o755, b.Sha256); err != nil {
			return err
		}
	}
	p := l.packer(img)
	if scenarios.BalancerKind.Of(plan.Parameters) == scenarios.HAProxy {
		if err := p.addTools(ctx, "haproxy"); err != nil {
			return err
		}
	}
	scenario, _ := scenarios.Find(plan.Scenario, plan.Offers()) // a benchmark has no scenario, and needs no tools for one
	if slices.Contains(scenario.Needs(plan.Parameters), scenarios.NodeCommands) || slices.ContainsFunc(proxies, func(p subject.Spec) bool { return p.Name == "kube-proxy" }) {
		if err := p.addProxyTools(ctx); err != nil {
			return err
		}
	}
	if spec.Exec != nil {
		if err := p.addExec(ctx, spec.Exec); err != nil {
			return err
		}
	}
	l.tools = p.set
	return p.addLibraries()
}

// building reports a step of a build or of a download.
func (c Call) building(s build.Step) {
	e := progress.Event{Kind: progress.Message, Text: s.Text}
	if s.Bytes > 0 || s.Total > 0 {
		e.Kind, e.Transfer = progress.Download, progress.Transfer{Bytes: s.Bytes, Total: s.Total, Left: s.Left}
	}
	c.report(e)
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
		i := slices.IndexFunc(binaries, func(b build.Binary) bool { return b.Target == proxyTarget(p) })
		if i < 0 { // bundled, or described by a file
			continue
		}
		if err := p.CheckFlags(ctx, binaries[i].Path); err != nil {
			return UsageError{Reason: err}
		}
	}
	return nil
}

// proxyTarget is the build target of a kube-proxy.
func proxyTarget(p subject.Spec) build.Target { return build.Target{Name: p.Name, Version: p.Version} }

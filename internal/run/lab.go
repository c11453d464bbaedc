package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Standing is what only a lab for other programs has.
type Standing struct {
	File string // gets the lab's kubeconfig
	Up   func() // called when the lab is up
	// DaemonSet runs the subject, a kube-proxy, in the pods of the DaemonSet kube-system/kube-proxy.
	DaemonSet bool
	// ProxyImages are further kube-proxies, as kube-proxy@VERSION, whose images the pods can run.
	ProxyImages []string
	// Images makes pods run the programs of their images, as in a cluster.
	Images bool
}

// Lab brings a lab up on the kernel that the options name, host or vm, and keeps it until ctx ends (see site.HoldLab).
func Lab(ctx context.Context, o Options, s Standing) error {
	if err := o.fillDefaults(ctx); err != nil {
		return err
	}
	o.Scenario = guest.LabScenario
	if err := o.checkNumbers(); err != nil {
		return err
	}
	spec, err := subject.Read(ctx, o.Subject)
	if err != nil {
		return UsageError{Reason: err}
	}
	if s.Images && o.ControlPlane != record.ControlKube {
		return UsageError{Reason: fmt.Errorf("--images: --controlplane %s has no tokens and no certificates for pods; give --controlplane kube", o.ControlPlane)}
	}
	set, err := s.daemonSet(spec, o.ControlPlane)
	if err != nil {
		return UsageError{Reason: err}
	}
	params, err := scenarios.Scenario{Name: o.Scenario}.Fill(o.Set)
	if err != nil {
		return UsageError{Reason: err}
	}
	if _, given := o.Set[scenarios.TerminatingFallback.Key]; !given {
		params[scenarios.TerminatingFallback.Key] = spec.DefaultFallback()
	} else if err := spec.CheckFallback(params[scenarios.TerminatingFallback.Key]); err != nil {
		return UsageError{Reason: err}
	}
	if err := spec.CheckFamily(scenarios.Params(params).Family()); err != nil {
		return UsageError{Reason: err}
	}
	plan := guest.Plan{Scenario: o.Scenario, Parameters: params, Seed: o.Seed, Subject: spec.String(), Exec: spec.Exec, DaemonSet: set, Images: s.Images,
		ControlPlane: o.ControlPlane, Nodes: o.Nodes, Rate: o.Rate}
	if o.Kernel == guest.KernelHost {
		plan.Kernel = o.Kernel
		err = plan.CheckHost()
	} else if family := scenarios.Params(params).Family(); family == record.IPv6 {
		err = fmt.Errorf("--kernel vm: the link to the VM has no %s; give --kernel host", family.API())
	}
	if err != nil {
		return UsageError{Reason: err}
	}
	return site.HoldLab(ctx, o.call(), o.LabOptions, plan, spec, s.File, s.Up)
}

// daemonSet is the DaemonSet of the plan, or the reason why the lab cannot have it.
func (s Standing) daemonSet(spec subject.Spec, controlPlane string) (*guest.DaemonSet, error) {
	switch {
	case !s.DaemonSet && len(s.ProxyImages) > 0:
		return nil, errors.New("--proxy-image adds an image for pods, and the proxies of this lab are no pods; give --proxy-daemonset too")
	case !s.DaemonSet:
		return nil, nil
	case spec.Exec != nil || spec.Name != subject.KubeProxy:
		return nil, fmt.Errorf("--proxy-daemonset: %s has no image; give --subject kube-proxy@VERSION/MODE", spec)
	case controlPlane != record.ControlKube:
		return nil, fmt.Errorf("--proxy-daemonset: --controlplane %s has no controller for DaemonSets; give --controlplane kube", controlPlane)
	}
	set, seen := &guest.DaemonSet{}, []string{spec.Version}
	for _, image := range s.ProxyImages {
		t, err := build.ParseTarget(image)
		if err == nil && t.Name != subject.KubeProxy {
			err = fmt.Errorf("%s is no proxy; give kube-proxy@VERSION", t.Name)
		}
		if err == nil && slices.Contains(seen, t.Version) {
			err = errors.New("the lab has this version already; give each version once")
		}
		if err != nil {
			return nil, fmt.Errorf("--proxy-image %s: %w", image, err)
		}
		other, err := subject.Parse(image + "/" + spec.Mode)
		if err != nil {
			return nil, fmt.Errorf("--proxy-image %s: %w", image, err)
		}
		seen, set.Others = append(seen, t.Version), append(set.Others, other.String())
	}
	return set, nil
}

// LabShell is the command line that runs a program in the network of a lab's client (see site.LabShell).
func LabShell(ctx context.Context, file string, command []string) ([]string, error) {
	return site.LabShell(ctx, file, command)
}

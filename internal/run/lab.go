package run

import (
	"context"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/scenarios"
)

// Lab brings a lab up on the host and keeps it until ctx ends (see site.HoldLab).
func Lab(ctx context.Context, o Options, file string, up func()) error {
	if err := o.fillDefaults(); err != nil {
		return err
	}
	o.Scenario, o.Kernel = guest.LabScenario, "host"
	if err := o.checkNumbers(); err != nil {
		return err
	}
	spec, err := subject.Parse(o.Subject)
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
	plan := guest.Plan{Scenario: o.Scenario, Parameters: params, Seed: o.Seed, Subject: spec.String(), Exec: spec.Exec,
		ControlPlane: o.ControlPlane, Nodes: o.Nodes, Rate: o.Rate, Kernel: guest.KernelHost}
	return site.HoldLab(ctx, o.call(), o.LabOptions, plan, spec, file, up)
}

// LabShell is the command line that runs a program in the network of a lab's client (see site.LabShell).
func LabShell(ctx context.Context, file string, command []string) ([]string, error) {
	return site.LabShell(ctx, file, command)
}

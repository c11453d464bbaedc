// Package scenarios disturbs a cluster and its proxy in named steps: a rollout, a restart of the proxy, a known fault. A
// scenario uses the interfaces of this package and the Kubernetes API, never the lab, so that the same steps
// drive the lab and a live cluster. Scenarios record their steps; package reports judges the record.
package scenarios

import (
	"context"
	"slices"
	"time"
)

// Scenario is one way to disturb a cluster, on sites that offer what its steps need.
type Scenario struct {
	Name    string
	Summary string // one line, for `hitless scenarios`
	// Parameters are the scenario's own `--set` keys with their defaults; Common come with every scenario.
	Parameters []Parameter
	// Steps lists the verbs of a timeline, and the other steps, that the scenario performs with these parameters. Needs and
	// Access follow from it. Nil for no steps.
	Steps func(p Params) []string
	// Touches lists the objects that it changes on a live cluster and that are not the run's own, one a line. It changes
	// nothing. The error is the reason why the scenario cannot run there. Nil where only the run's own objects change.
	Touches func(ctx context.Context, w *World) ([]string, error)
	// Setup is how the run is set up for the scenario; nil for the zero value.
	Setup func(p Params) Setup
	// Lanes are measured from the baseline on, besides those of the parameter lanes; nil for none.
	Lanes func(w *World) []LaneSpec
	// Prepare runs before any traffic flows; nil for nothing.
	Prepare func(ctx context.Context, w *World) error
	// Run disturbs the cluster while the lanes run. It records each step through World.Step.
	Run func(ctx context.Context, w *World) error
}

// Setup is how the workloads of a run are set up.
type Setup struct {
	Gated       bool // the measured pods have a readiness gate
	Datagrams   bool // a lane of the scenario's own speaks UDP
	BriefCanary bool // the canary Service is deleted after the proof: over days its health checks would cost more than all the rest
	// Away is the longest time that a node is without its proxy, where the parameter downtime does not say it.
	Away time.Duration
	// Lasts is about how long Run takes, and PerNode what each node adds. Both are 0 where the parameters do not determine it.
	Lasts, PerNode time.Duration
	// Least is how long Run takes at least, unless a failure ends it; 0 for no such time.
	Least time.Duration
}

func (s Scenario) setup(p Params) Setup {
	if s.Setup == nil {
		return Setup{}
	}
	return s.Setup(p)
}

// AllParameters are the scenario's own parameters and those that every scenario has.
func (s Scenario) AllParameters() []Parameter {
	own := map[string]bool{}
	for _, p := range s.Parameters {
		own[p.Key] = true
	}
	all := slices.Clone(s.Parameters)
	for _, p := range append(s.companions(), Common()...) {
		if !own[p.Key] {
			all = append(all, p)
		}
	}
	return all
}

// Defaults are the values of all parameters where none is given.
func (s Scenario) Defaults() Params {
	p := Params{}
	for _, parameter := range s.AllParameters() {
		p[parameter.Key] = parameter.Default
	}
	return p
}

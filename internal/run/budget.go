package run

import (
	"context"
	"slices"

	"github.com/hitless/hitless/analysis/budget"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/scenarios"
)

// loadBudget reads the budget file. Every error is a UsageError.
func (o *Options) loadBudget(ctx context.Context) error {
	if o.Budget == "" {
		return nil
	}
	b, err := budget.Load(ctx, o.Budget)
	if err == nil {
		err = b.CheckScenarios(ScenarioNames())
	}
	if err != nil {
		return usagef("--budget: %w", err)
	}
	o.budget = b
	return nil
}

// ScenarioNames are the names that a rule can have.
func ScenarioNames() (names []string) {
	for _, s := range scenarios.All() {
		names = append(names, s.Name)
	}
	names = append(names, scenarios.ReplayName)
	slices.Sort(names)
	return slices.Compact(names)
}

// checkBudget refuses a rule that names a lane which the run in a lab will not have. The lanes of a scenario's own are known only when
// it has run: a rule without its lane makes that run invalid.
func (o *Options) checkBudget(plan guest.Plan) error {
	if o.budget == nil || guest.Unjudged(o.Scenario) {
		return nil
	}
	s, err := o.scenario(&plan)
	if err != nil {
		return UsageError{Reason: err}
	}
	lanes, all := s.LaneNames(plan.Parameters)
	if !all {
		return nil
	}
	if err := o.budget.CheckLanes(plan.Scenario, lanes); err != nil {
		return usagef("--budget: %w", err)
	}
	return nil
}

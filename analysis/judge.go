package analysis

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/record"
)

// RuleError is a rule of a budget that names what the run lacks.
type RuleError struct {
	Rule int // index in the budget
	Err  error
}

// Error says which rule it is, and why.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %d of the budget: %v", e.Rule+1, e.Err) }

// Unwrap returns the reason.
func (e *RuleError) Unwrap() error { return e.Err }

// Judge judges a recorded run by another budget; nil is the run's own. It keeps the budget of the history. A rule that names what the
// run lacks is a RuleError.
func Judge(h *record.History, budget *record.Budget) (*Report, error) {
	if budget == nil {
		return Build(h)
	}
	a, err := New(h)
	if err != nil {
		return nil, Unreadable(h, err)
	}
	bad := a.CheckBudget(*budget)
	for _, i := range slices.Sorted(maps.Keys(bad)) {
		return nil, &RuleError{i, bad[i]}
	}
	a.Run.Budget = *budget
	return a.Report(), nil
}

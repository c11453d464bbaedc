package analysis

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/internal/units"
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

// EarlyReport says when and why a run ended before its end.
type EarlyReport struct {
	At     float64 `json:"at"` // seconds: the last instant of the record
	Reason string  `json:"reason"`
}

// Interrupted reports whether a person or a signal ended the run.
func (e *EarlyReport) Interrupted() bool { return e.Reason == record.Interrupted }

// EndedEarly makes the analysis that of a run that ended early, before the record has a seal that says so.
func (a *Analysis) EndedEarly(reason string) { a.early, a.distrust = reason, record.EarlyText(reason) }

func (a *Analysis) earlyReport() *EarlyReport {
	if a.early == "" {
		return nil
	}
	return &EarlyReport{At: units.Seconds(a.End), Reason: a.early}
}

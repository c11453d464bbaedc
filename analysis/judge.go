package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

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

// KnownBug is a historical bug whose loss has a kind of cause, with the version that fixes it. The museum has the whole entry.
type KnownBug struct {
	ID, Subject, Fixed string
	Change             string // that fixes it
	Kind               string // of the cause of its outages, which last until the load balancer removes the node
	Parameter          string // with which a subject behaves like a version with the bug, KEY=VALUE
}

// KnownBugs are the bugs that the cause of an outage alone can name.
func KnownBugs() []KnownBug {
	return []KnownBug{{ID: "k8s-85643", Subject: "kube-proxy", Fixed: "v1.26.0", Change: "KEP-1669", Kind: onlyLocalPod, Parameter: "terminatingFallback=off"}}
}

// nextSteps are what a reader of a failed run can change.
func (a *Analysis) nextSteps(r *Report) (steps []string) {
	if r.Early != nil {
		return []string{"Run it again: partial results say nothing about the rest of the run"}
	}
	if r.Verdict != Fail || r.Totals.Dropped+r.Totals.Delayed == 0 {
		return nil
	}
	steps = append(steps, a.whereToLook(r)...)
	for _, b := range KnownBugs() {
		old := r.Subject.Name == b.Subject && semver.IsValid(r.Subject.Version) && semver.Compare(r.Subject.Version, b.Fixed) < 0
		key, value, _ := strings.Cut(b.Parameter, "=")
		if !old && r.Run.Parameters[key] != value {
			continue
		}
		if slices.ContainsFunc(r.AllOutages(), func(o LaneOutage) bool { return o.Cause.Kind == b.Kind && o.Cause.Ended != "" }) {
			steps = append(steps, fmt.Sprintf("Fixed in %s %s (%s; %s in docs/museum.md)", b.Subject, strings.TrimSuffix(b.Fixed, ".0"), b.Change, b.ID))
		}
	}
	if changed := Changed(a.Run.Command); len(changed) > 0 {
		steps = append(steps, "Run it with the defaults instead of "+strings.Join(changed, ", "))
	}
	return steps
}

// whereToLook says how to see what the node of the first outage did: the log of its proxy, and its kernel's tables at that time.
func (a *Analysis) whereToLook(r *Report) (steps []string) {
	all := r.AllOutages()
	if len(all) == 0 {
		return nil
	}
	first := slices.MinFunc(all, func(x, y LaneOutage) int { return cmp.Compare(x.From, y.From) })
	if first.Node != "" && a.Run.Kernel.Kind != "cluster" {
		steps = append(steps, fmt.Sprintf("Read what the proxy did at %s: logs/proxy-%s.log", units.At(first.From), first.Node))
	}
	if a.Run.Clock == "virtual" {
		steps = append(steps, "See the kernels' tables at the first loss: "+stopAt(a.Run.Command, first.From))
	}
	return steps
}

// stopAt is the command that repeats a run until a time, in seconds; for a run of a command without --stop-at, what to add to one that has it.
func stopAt(command string, at float64) string {
	for _, verb := range []string{"hitless run ", "hitless replay "} {
		if strings.HasPrefix(command, verb) {
			return fmt.Sprintf("%s --stop-at %.3fs", command, at)
		}
	}
	return fmt.Sprintf("replay history/timeline with --stop-at %.3fs", at)
}

package suites

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
)

// Finished waits for the run and returns it with its history. The spec fails when the run has no report or is invalid, when the report
// contradicts the history, or when events do not explain the losses.
func (f *Future) Finished() (*run.Result, *record.History) {
	ginkgo.GinkgoHelper()
	result, history, err := f.finished()
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	return result, history
}

// Report returns the report of a run. The spec fails as with Finished.
func (f *Future) Report() *analysis.Report {
	ginkgo.GinkgoHelper()
	result, _ := f.Finished()
	return result.Report
}

func (f *Future) finished() (*run.Result, *record.History, error) {
	result, history, err := f.Wait()
	if err != nil {
		return nil, nil, err
	}
	r := result.Report
	fmt.Fprintln(ginkgo.GinkgoWriter, strings.Join(r.Reasons, "; "))
	if r.Verdict == analysis.Invalid {
		return nil, nil, fmt.Errorf("the run in %s is invalid: %s", result.Dir, strings.Join(r.Reasons, "; "))
	}
	if err := analysis.CheckAgreement(history, r); err != nil {
		return nil, nil, err
	}
	return result, history, CheckExplained(r)
}

// Runs are the runs of a suite by name.
type Runs map[string]*Future

// Report returns the report of a started run. The spec fails as with Future.Finished.
func (r Runs) Report(name string) *analysis.Report {
	ginkgo.GinkgoHelper()
	f, found := r[name]
	if !found {
		ginkgo.Fail(fmt.Sprintf("run %q was not started", name))
	}
	return f.Report()
}

// CheckLossless returns an error unless the verdict is pass and no connection was dropped or delayed.
func CheckLossless(r *analysis.Report) error {
	if r.Verdict == analysis.Pass && r.Totals.Dropped+r.Totals.Delayed == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d dropped and %d delayed of %d attempts: %s", r.Verdict, r.Totals.Dropped, r.Totals.Delayed, r.Totals.Attempts,
		strings.Join(r.Reasons, "; "))
}

// FindLane returns the measured lane of that name.
func FindLane(r *analysis.Report, name string) (analysis.LaneReport, error) {
	i := slices.IndexFunc(r.Lanes, func(l analysis.LaneReport) bool { return l.Name == name })
	if i < 0 {
		return analysis.LaneReport{}, fmt.Errorf("the report has no lane %s among its %d lanes", name, len(r.Lanes))
	}
	return r.Lanes[i], nil
}

// LaneOf is FindLane in a spec, which fails without the lane.
func LaneOf(r *analysis.Report, name string) analysis.LaneReport {
	ginkgo.GinkgoHelper()
	l, err := FindLane(r, name)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	return l
}

// EventTime returns the time of the first later event of the kind on the node with words in its text. Times are in seconds since the
// start of the run.
func EventTime(r *analysis.Report, after float64, kind record.Kind, node, words string) (float64, error) {
	for _, e := range r.Events {
		if e.At > after && e.Kind == kind && e.Node == node && strings.Contains(e.Text, words) {
			return e.At, nil
		}
	}
	return 0, fmt.Errorf("no event %s on %q after +%.3f s has %q in its text", kind, node, after, words)
}

// TimeOf is EventTime in a spec, which fails without the event.
func TimeOf(r *analysis.Report, after float64, kind record.Kind, node, words string) float64 {
	ginkgo.GinkgoHelper()
	at, err := EventTime(r, after, kind, node, words)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	return at
}

// CheckExplained returns an error when events explain less than 95 % of the lost connections; it lists the unexplained outages.
func CheckExplained(r *analysis.Report) error {
	const least = 0.95
	if 1-r.Unexplained.Share >= least {
		return nil
	}
	var outages []string
	for _, l := range r.Lanes {
		for _, o := range l.Outages {
			if o.Cause.Event == "" {
				outages = append(outages, fmt.Sprintf("%s at +%.3f s over %q: %v", l.Name, o.From, o.Node, o.Classes))
			}
		}
	}
	return fmt.Errorf("events explain %.1f %% of %d lost connections, want %.0f %%: %s", 100*(1-r.Unexplained.Share),
		r.Totals.Dropped+r.Totals.Delayed, 100*least, strings.Join(outages, "; "))
}

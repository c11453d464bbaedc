package suites

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Report waits for the run and returns its report, if a spec may believe what it says: its measurement can be trusted, it agrees
// with the history that it was made from, and events explain what was lost.
func (f *Future) Report() (*reports.Report, error) {
	result, history, err := f.Wait()
	if err != nil {
		return nil, err
	}
	r := result.Report
	fmt.Fprintln(ginkgo.GinkgoWriter, strings.Join(r.Reasons, "; ")) // what was seen, also where all is as it should be
	if r.Verdict == reports.Invalid {
		return r, fmt.Errorf("the run in %s is invalid: %s", result.Dir, strings.Join(r.Reasons, "; "))
	}
	if err := reports.CheckAgreement(history, r); err != nil {
		return r, err
	}
	return r, CheckExplained(r)
}

// Runs are the runs of a suite by name.
type Runs map[string]*Future

// Report is the report of a run that was begun; the spec fails when it may not believe what it says.
func (r Runs) Report(name string) *reports.Report {
	ginkgo.GinkgoHelper()
	f, begun := r[name]
	if !begun {
		ginkgo.Fail(fmt.Sprintf("no run %q was begun", name))
	}
	report, err := f.Report()
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	return report
}

// Lossless says what a run lost that was to lose nothing; nil when its verdict is pass and no connection was dropped or delayed.
func Lossless(r *reports.Report) error {
	if r.Verdict == reports.Pass && r.Totals.Dropped+r.Totals.Delayed == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d dropped and %d delayed of %d attempts: %s", r.Verdict, r.Totals.Dropped, r.Totals.Delayed, r.Totals.Attempts,
		strings.Join(r.Reasons, "; "))
}

// Lane is the measured lane with that name.
func Lane(r *reports.Report, name string) (reports.LaneReport, error) {
	i := slices.IndexFunc(r.Lanes, func(l reports.LaneReport) bool { return l.Name == name })
	if i < 0 {
		return reports.LaneReport{}, fmt.Errorf("the report has no lane %s, it has %d others", name, len(r.Lanes))
	}
	return r.Lanes[i], nil
}

// When is the time, in seconds from the start of the run, of the first event after a time that is of the kind, on the node, and has
// the words in its text.
func EventTime(r *reports.Report, after float64, kind record.Kind, node, words string) (float64, error) {
	for _, e := range r.Events {
		if e.At > after && e.Kind == kind && e.Node == node && strings.Contains(e.Text, words) {
			return e.At, nil
		}
	}
	return 0, fmt.Errorf("no event %s on %q after +%.3f s has %q in its text", kind, node, after, words)
}

// Explained returns an error when events explain less than 95 % of what a run lost; it names the outages that nothing explains.
func CheckExplained(r *reports.Report) error {
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

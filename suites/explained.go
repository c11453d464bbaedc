package suites

import (
	"fmt"
	"strings"

	"github.com/hitless/hitless/reports"
)

// Explained returns an error when events explain less than 95 % of what a run lost; it names the outages that nothing explains.
func Explained(r *reports.Report) error {
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

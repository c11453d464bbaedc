package museum

import (
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

const (
	// A late proxy has correct tables after at most two sync periods and 5 s.
	minLasting = 2*syncPeriod + 5*time.Second
	// An outage that lasts to the end of the run has its last failed attempt at most this long before the end.
	endWithin = 2 * time.Second
	// A step takes effect at most this long after its end.
	effectWithin = 5 * time.Second
)

// step is one step of the scenario with its begin and end.
type step struct {
	name, node string
	begin, end time.Duration
}

// steps returns the ended steps whose name begins with a prefix.
func (r *Record) steps(prefix string) (found []step) {
	begun := map[string]time.Duration{}
	for _, e := range r.Events {
		switch b, is := e.Body.(record.Step); {
		case !is || !strings.HasPrefix(e.Object, prefix):
		case b.State == "begin":
			begun[e.Object] = e.At
		case b.State == "end":
			found = append(found, step{e.Object, e.Node, begun[e.Object], e.At})
		}
	}
	return found
}

// end returns when the lanes stopped, or before that when the recovery check began: its change of a Service makes a proxy sync.
func (r *Record) end() time.Duration {
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Endpoint:
			if b.Service == scenarios.RecoveryName {
				return e.At
			}
		case record.Phase:
			if e.Object == "end" {
				return e.At
			}
		}
	}
	return fromSeconds(r.Report.Run.Duration)
}

// lastingOutages returns the outages that began during a step or soon after, and last to the end of the run.
func (r *Record) lastingOutages(s step) (found []analysis.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			begun := fromSeconds(o.From) >= s.begin && fromSeconds(o.From) <= s.end+effectWithin
			if begun && fromSeconds(o.To) >= r.end()-endWithin {
				found = append(found, o)
			}
		}
	}
	return found
}

// checkObserved returns why the run cannot show an outage that begins with a step and does not end; nil when it can.
func (r *Record) checkObserved(s step) *Finding {
	cannot := func(f Finding) *Finding { return &f }
	switch floor := r.Report.DetectionFloor.Ms; {
	case r.end()-s.end < minLasting:
		return cannot(cannotTell("the lanes ran for %s after step %q; the bug needs %s", r.end()-s.end, s.name, minLasting))
	case floor == nil || *floor > millis(minLasting):
		return cannot(cannotTell("the run could not have detected an outage of %s", minLasting))
	}
	return nil
}

// describeLasting describes an outage that lasts to the end of the run, with the classes of its attempts.
func describeLasting(o analysis.OutageReport) string {
	return fmt.Sprintf("%s dropped connections from %.1f s on, for %.0f s and to the end of the run (%s)", o.Node, o.From, o.LowerMs/1000, countsOf(o.Classes))
}

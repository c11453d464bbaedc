package museum

import (
	"strings"
	"time"

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
		case b.State == record.StepBegin:
			begun[e.Object] = e.At
		case b.State == record.StepEnd:
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

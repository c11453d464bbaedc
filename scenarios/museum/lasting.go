package museum

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

const (
	// A proxy that is merely late has its tables right within this time: two sync periods and a little more.
	lastsLeast = 2*syncPeriod + 5*time.Second
	// An outage that lasts to the end of a run has its last failure at most this long before.
	endWithin = 2 * time.Second
	// What a step does has its effect at most this long after the step's end.
	effectWithin = 5 * time.Second
)

// step is one step of the scenario.
type step struct {
	name, node string
	begin, end time.Duration
}

// steps are the steps that came to their end and whose name begins with a prefix.
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

// end is when the lanes stopped.
func (r *Record) end() time.Duration {
	for _, e := range r.Events {
		if e.Kind() == record.KindPhase && e.Object == "end" {
			return e.At
		}
	}
	return fromSeconds(r.Report.Run.Duration)
}

// lasting are the outages that a step may have begun and that last to the end of the run.
func (r *Record) lasting(s step) (found []reports.OutageReport) {
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

// watchedAfter says why a run could not tell that an outage which a step began never ends; nil when it could.
func (r *Record) watchedAfter(s step) *Finding {
	cannot := func(f Finding) *Finding { return &f }
	switch floor := r.Report.DetectionFloor.Ms; {
	case r.end()-s.end < lastsLeast:
		return cannot(cannotTell("traffic flowed on for %s after %q; the bug needs %s", r.end()-s.end, s.name, lastsLeast))
	case floor == nil || *floor > millis(lastsLeast):
		return cannot(cannotTell("an outage of %s would not have been seen", lastsLeast))
	}
	return nil
}

// never tells an outage that lasts to the end of the run, with its cause.
func never(o reports.OutageReport) string {
	return fmt.Sprintf("%s lost connections from %.1f s on, for %.0f s and to the end of the run (%s)", o.Node, o.From, o.LowerMs/1000, classesOf(o))
}

func classesOf(o reports.OutageReport) string {
	var words []string
	for class, n := range o.Classes {
		words = append(words, fmt.Sprintf("%s %d", class, n))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

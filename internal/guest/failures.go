package guest

import (
	"sync"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// failures are the seconds of the run in which attempts failed, so that what is evidence can be told from what is not when the
// run ends. A day has 86,400 of them at most.
type failures struct {
	mu      sync.Mutex
	seconds map[time.Duration]bool
}

func newFailures() *failures { return &failures{seconds: map[time.Duration]bool{}} }

// add takes note of a failed attempt: of its whole life, since what it met may have come after its start.
func (f *failures) add(a record.Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := a.Start.Truncate(time.Second); s <= a.Start+a.Total; s += time.Second {
		f.seconds[s] = true
	}
}

// near reports whether an instant is within a report's evidence of an outage, or up to a second farther away.
func (f *failures) near(at time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := (at - reports.EvidenceSpan).Truncate(time.Second); s <= at+reports.EvidenceSpan; s += time.Second {
		if f.seconds[s] {
			return true
		}
	}
	return false
}

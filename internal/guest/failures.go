//go:build linux

package guest

import (
	"sync"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// failures are the seconds of the run in which attempts failed. At the end of the run they select the evidence. A day has at most
// 86,400.
type failures struct {
	mu      sync.Mutex
	seconds map[time.Duration]bool
}

func newFailures() *failures { return &failures{seconds: map[time.Duration]bool{}} }

// add adds all seconds of a failed attempt, since its cause may be later than its start.
func (f *failures) add(a record.Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := a.Start.Truncate(time.Second); s <= a.Start+a.Total; s += time.Second {
		f.seconds[s] = true
	}
}

// near reports whether a time is within the evidence span of an outage, plus up to a second.
func (f *failures) near(at time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := (at - analysis.EvidenceSpan).Truncate(time.Second); s <= at+analysis.EvidenceSpan; s += time.Second {
		if f.seconds[s] {
			return true
		}
	}
	return false
}

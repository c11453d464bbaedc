package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// The limits of the table of an outage's failed attempts.
const (
	maxWays     = 8
	maxAttempts = 10_000
)

// seenRow summarizes the failed attempts of an outage that failed in the same way, as the client saw them.
type seenRow struct {
	Class, Detail string
	Offender      string // sender of the ICMP error
	Attempts      int
	Connected     int // attempts with an established connection
	Again         int // attempts with a retransmission
	Took          string
	Example       string // source address of the first attempt, for a search in a packet capture

	shortest, longest, first time.Duration
}

// addSamples adds summaries of the failed attempts to the outages. For a damaged record it uses the readable part.
func addSamples(a *analysis.Analysis, h *record.History, outages []outage) {
	of := map[analysis.AttemptKey]*outage{}
	for i := range outages {
		p, n := &outages[i], 0
		p.found.EachFailed(func(r *analysis.Sample) {
			if n++; n <= maxAttempts {
				of[analysis.AttemptKey{Lane: p.found.Lane.ID, Seq: uint64(r.Seq)}] = p
			}
		})
		p.Unseen = max(0, n-maxAttempts)
	}
	for e, err := range h.Entries() {
		if err != nil {
			break
		}
		if p := of[analysis.AttemptKey{Lane: e.Attempt.Lane, Seq: e.Attempt.Seq}]; p != nil && e.Bucket == nil {
			p.count(&e.Attempt)
		}
	}
	for i := range outages {
		p := &outages[i]
		slices.SortStableFunc(p.Seen, func(x, y seenRow) int {
			return cmp.Or(cmp.Compare(y.Attempts, x.Attempts), cmp.Compare(x.first, y.first))
		})
		p.MoreSeen = max(0, len(p.Seen)-maxWays)
		p.Seen = p.Seen[:len(p.Seen)-p.MoreSeen]
		for k := range p.Seen {
			s := &p.Seen[k]
			if s.Took = units.MsText(units.Millis(s.longest)); s.shortest < s.longest {
				s.Took = fmt.Sprintf("%s to %s", units.MsText(units.Millis(s.shortest)), s.Took)
			}
		}
	}
}

// count adds an attempt to the row of its way to fail.
func (p *outage) count(a *record.Attempt) {
	way := seenRow{Class: a.Class.String(), Detail: a.Detail, shortest: a.Total, longest: a.Total, first: a.Start}
	if a.Offender.IsValid() {
		way.Offender = a.Offender.String()
	}
	i := slices.IndexFunc(p.Seen, func(s seenRow) bool {
		return s.Class == way.Class && s.Detail == way.Detail && s.Offender == way.Offender
	})
	if i < 0 {
		i, p.Seen = len(p.Seen), append(p.Seen, way)
	}
	s := &p.Seen[i]
	s.Attempts++
	s.shortest, s.longest = min(s.shortest, a.Total), max(s.longest, a.Total)
	if a.Connect > 0 {
		s.Connected++
	}
	if a.Retrans > 0 {
		s.Again++
	}
	if s.Example == "" || a.Start < s.first {
		s.first, s.Example = a.Start, fmt.Sprintf("%v at %s", a.Source, units.At(units.Seconds(a.Start)))
	}
}

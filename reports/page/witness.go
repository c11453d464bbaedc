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

// What the page tells of an outage's attempts: how many ways to fail, of how many of them.
const (
	maxWays     = 8
	maxAttempts = 10_000
)

// seenRow is what the client saw of an outage's attempts that failed in one way.
type seenRow struct {
	Class, Detail string
	Offender      string // who sent the ICMP error
	Attempts      int
	Connected     int // of them had their connection established
	Again         int // of them had sent something again
	Took          string
	Example       string // the first one's address, to be found in a packet trace

	shortest, longest, first time.Duration
}

// witness adds to the outages what the client saw of their failed attempts. A record that is damaged has them as far as it goes.
func witness(a *analysis.Analysis, h *record.History, outages []outage) {
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
			p.see(&e.Attempt)
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

// see counts an attempt among those that failed in its way.
func (p *outage) see(a *record.Attempt) {
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

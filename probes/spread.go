package probes

import (
	"net/netip"
	"time"

	"github.com/hitless/hitless/reports"
)

// evenSource draws from a walk, and skips tuples until one has the wanted hash: attempt k wants the fractional part of
// k times the golden ratio. Of all sequences that is the one whose points are spread most evenly at each length, so that
// every part of the hash's range, a node's share of it, is visited at nearly equal distances (three-distance theorem).
type evenSource struct {
	fresh  freshSource
	target netip.AddrPort
	seed   uint32
}

const (
	golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	// spreadWithin is how far a hash may be from the wanted one, 1/64 of the range: 32 tuples are drawn for one on average.
	spreadWithin = 1 << 26
	// spreadTries bounds the search; one in 10^13 needs more, and then takes what comes.
	spreadTries = 1000
)

func (s evenSource) next(k uint64, now time.Duration) (tuple netip.AddrPort, age time.Duration, ok bool) {
	want := uint32(k * golden >> 32)
	for range spreadTries {
		tuple, age, ok = s.fresh.next(k, now)
		// The sum wraps, as the range does.
		if !ok || reports.FlowHash(tuple, s.target, s.seed)-want+spreadWithin < 2*spreadWithin {
			break
		}
	}
	return tuple, age, ok
}

// drawn is how many tuples of its walk a lane uses for one attempt, on average.
func (l Lane) drawn() float64 {
	if l.SpreadSeed == 0 {
		return 1
	}
	return 1 << 32 / (2 * spreadWithin)
}

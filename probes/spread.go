package probes

import (
	"net/netip"
	"time"

	"github.com/hitless/hitless/record"
)

// evenSource draws from a walk, and skips tuples until one has the wanted hash. The attempts want the nodes' shares of the
// hash's range one after the other, so that each node has its turn after as many attempts as there are nodes. Within a
// share they move by the golden ratio from round to round: when some of the nodes are out of the balancer, the bounds between
// the larger shares of the others lie anywhere, and no node may be passed over again and again.
type evenSource struct {
	fresh  freshSource
	target netip.AddrPort
	seed   uint32
	nodes  int
	like   netip.AddrPort // when valid: go the way of this one, whatever the attempt's number
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio

// spreadTries bounds the search, in multiples of the tuples that it takes on average; one in 10^13 needs more, and then takes
// what comes.
const spreadTries = 32

// spreadWithin is how far a hash may be from the wanted one: 1/64 of the range, so that 32 tuples are drawn for one on
// average, or with many nodes a quarter of a share.
func spreadWithin(nodes int) uint32 { return uint32(min(1<<26, 1<<32/(4*uint64(nodes)))) }

func (s evenSource) next(k uint64, now time.Duration) (tuple netip.AddrPort, age time.Duration, ok bool) {
	n := uint64(s.nodes)
	share := 1 << 32 / n
	moved := share / 2 * (k / n * golden >> 32) >> 32 // in the middle half: the quarters beside it are what a hash may be off
	want, within := uint32(k%n*share+share/4+moved), spreadWithin(s.nodes)
	if s.like.IsValid() {
		want = record.FlowHash(s.like, s.target, s.seed)
	}
	for range spreadTries * int(drawn(s.nodes)) {
		tuple, age, ok = s.fresh.next(k, now)
		// The sum wraps, as the range does.
		if !ok || record.FlowHash(tuple, s.target, s.seed)-want+within < 2*within {
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
	return drawn(l.SpreadNodes)
}

func drawn(nodes int) float64 { return 1 << 32 / (2 * float64(spreadWithin(nodes))) }

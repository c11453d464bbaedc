package probes

import (
	"net/netip"
	"testing"

	"github.com/hitless/hitless/record"
)

// The promise: each node has its turn, however many of them the balancer sends to. The same measure on random sources shows
// that it is the spread that does it.
func TestAnEvenLaneLeavesNoNodeAlone(t *testing.T) {
	target := netip.MustParseAddrPort("203.0.113.10:80")
	for _, seed := range []uint32{1, 2, 77, 0xffffffff} {
		for _, nodes := range []int{1, 2, 3, 4, 5, 10, 50} {
			walk := newWalk(netip.MustParsePrefix("10.200.0.0/16"), int64(seed))
			for healthy := 1; healthy <= nodes; healthy++ {
				even, most := longestWait(evenSource{fresh: freshSource{walk}, target: target, seed: seed, nodes: nodes}, target, seed, healthy), nodes
				if healthy < nodes && nodes > 3 {
					most *= 8
				}
				if even > most {
					t.Errorf("seed %d, %d of %d nodes: one waited %d attempts for its turn", seed, healthy, nodes, even)
				}
			}
			even := longestWait(evenSource{fresh: freshSource{walk}, target: target, seed: seed, nodes: nodes}, target, seed, nodes)
			if plain := longestWait(freshSource{walk}, target, seed, nodes); nodes > 1 && plain < 2*even {
				t.Errorf("seed %d, %d nodes: a random walk leaves a node alone for only %d attempts: the measure shows nothing", seed, nodes, plain)
			}
		}
	}
}

func longestWait(s source, target netip.AddrPort, seed uint32, nodes int) int {
	last := make([]int, nodes)
	longest := 0
	for k := range 3000 {
		tuple, _, _ := s.next(uint64(k), 0)
		node := record.PickNode(tuple, target, seed, nodes)
		if last[node] > 0 {
			longest = max(longest, k+1-last[node])
		}
		last[node] = k + 1
	}
	return longest
}

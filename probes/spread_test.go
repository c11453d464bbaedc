package probes

import (
	"net/netip"
	"testing"

	"github.com/hitless/hitless/reports"
)

// The promise: whatever the number of nodes, none is left alone for long. The same measure on random sources shows that
// it is the spread that does it.
func TestAnEvenLaneLeavesNoNodeAlone(t *testing.T) {
	target := netip.MustParseAddrPort("203.0.113.10:80")
	for _, seed := range []uint32{1, 2, 77, 0xffffffff} {
		for nodes, most := range map[int]int{1: 1, 2: 3, 3: 5, 4: 8, 5: 8, 10: 21} {
			walk := newWalk(netip.MustParsePrefix("10.200.0.0/16"), int64(seed))
			even := longestWait(evenSource{freshSource{walk}, target, seed}, target, seed, nodes)
			if even > most {
				t.Errorf("seed %d, %d nodes: a node waited %d attempts for its turn, want at most %d", seed, nodes, even, most)
			}
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
		node := reports.PickNode(tuple, target, seed, nodes)
		if last[node] > 0 {
			longest = max(longest, k+1-last[node])
		}
		last[node] = k + 1
	}
	return longest
}

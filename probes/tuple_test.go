package probes

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
)

func TestWalkRepeatsOnlyAfterAllTuples(t *testing.T) {
	for _, text := range []string{"10.200.0.7/32", "10.200.0.4/31", "10.200.0.4/30", "10.200.1.0/28", "fd00::7/128", "fd00::/125"} {
		prefix := netip.MustParsePrefix(text)
		w := newWalk(prefix, 3)
		seen := make(map[netip.AddrPort]bool, w.length())
		for range w.length() {
			tuple := w.next(0)
			if seen[tuple] {
				t.Fatalf("%s: %s comes twice within %d", text, tuple, w.length())
			}
			if seen[tuple] = true; !prefix.Contains(tuple.Addr()) || tuple.Port() < firstPort || int(tuple.Port()) >= firstPort+portCount {
				t.Fatalf("%s: %s is outside", text, tuple)
			}
		}
	}
}

// No tuple repeats within FreshFor, at any rate and for any prefix: either the walk is long enough, or next reports
// that no tuple is left. Lanes with one prefix share the walk.
func TestFreshTuplesAreFresh(t *testing.T) {
	for _, text := range []string{"10.200.0.9/32", "10.200.0.8/31", "10.200.0.0/16", "fd00::9/128"} {
		for _, gap := range []time.Duration{100 * time.Microsecond, time.Millisecond, FreshFor / portCount, 5 * time.Millisecond, time.Second} {
			w := newWalk(netip.MustParsePrefix(text), int64(gap))
			lanes := []freshSource{{w}, {w}}
			used := map[netip.AddrPort]time.Duration{}
			for k := range uint64(40_000) {
				now := time.Duration(k) * gap
				tuple, age, ok := lanes[k%2].next(k, now)
				if !ok {
					continue
				}
				last, again := used[tuple]
				if again && now-last < FreshFor {
					t.Fatalf("%s: %s again after %v", text, tuple, now-last)
				}
				if again != (age > 0) || (again && age > now-last) {
					t.Fatalf("%s: age %v of %s, want at most %v", text, age, tuple, now-last)
				}
				used[tuple] = now
			}
		}
	}
}

func TestWalkAgeAfterRepeat(t *testing.T) {
	w := newWalk(netip.MustParsePrefix("10.200.0.9/32"), 1)
	gap := 10 * time.Millisecond
	cycle := time.Duration(w.length()) * gap
	for k := range 3 * w.length() {
		now := time.Duration(k) * gap
		age := w.age(now)
		w.next(now)
		if first := k < w.length(); first != (age == 0) || (!first && (age > cycle || age < cycle-cycle/1000)) {
			t.Fatalf("draw %d: age %v, the tuple was used %v ago", k, age, cycle)
		}
	}
}

func TestWalkIsAFunctionOfSeedAndPrefix(t *testing.T) {
	draw := func(seed int64, prefix string) (all []netip.AddrPort) {
		w := newWalk(netip.MustParsePrefix(prefix), seed)
		for range 100 {
			all = append(all, w.next(0))
		}
		return all
	}
	equal := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	first := draw(1, "10.200.0.0/16")
	if diff := cmp.Diff(first, draw(1, "10.200.0.0/16"), equal); diff != "" {
		t.Errorf("the same seed differs:\n%s", diff)
	}
	if cmp.Equal(first, draw(2, "10.200.0.0/16"), equal) {
		t.Error("another seed gives the same tuples")
	}
}

func TestWalkSpreadsOverTheAddresses(t *testing.T) {
	w := newWalk(netip.MustParsePrefix("10.200.0.0/16"), 1)
	addresses := map[netip.Addr]bool{}
	for range 10_000 {
		addresses[w.next(0).Addr()] = true
	}
	if len(addresses) != 10_000 || addresses[netip.MustParseAddr("10.200.0.0")] || addresses[netip.MustParseAddr("10.200.255.255")] {
		t.Errorf("10000 draws of a /16 used %d addresses", len(addresses))
	}
}

func TestReuseSourceRepeatsAfterInterval(t *testing.T) {
	l := testLane(30)
	for _, test := range []struct {
		interval time.Duration
		tuples   int
	}{{100 * time.Millisecond, 3}, {110 * time.Millisecond, 4}, {time.Second, 30}, {time.Millisecond, 1}} {
		s := newReuseSource(newWalk(l.SourcePrefix, 1), l, test.interval, 0)
		distinct := map[netip.AddrPort]bool{}
		last := map[netip.AddrPort]time.Duration{}
		attempts := schedule{rate: l.Rate}
		for k := range uint64(100) {
			now := attempts.at(k)
			tuple, age, ok := s.next(k, now)
			before, again := last[tuple]
			if !ok || again != (age > 0) || (again && (age != now-before || age < test.interval)) {
				t.Fatalf("%v: attempt %d has tuple %s of age %v", test.interval, k, tuple, age)
			}
			distinct[tuple], last[tuple] = true, now
		}
		if len(distinct) != test.tuples {
			t.Errorf("%v at 30/s used %d tuples, want %d", test.interval, len(distinct), test.tuples)
		}
	}
}

// The promise: each node has its turn, however many of them the balancer sends to. The same measure on random sources shows
// that it is the spread that does it.
func TestSpreadLaneProbesEveryNode(t *testing.T) {
	target := netip.MustParseAddrPort("203.0.113.10:80")
	for _, seed := range []uint32{1, 2, 77, 0xffffffff} {
		for _, nodes := range []int{1, 2, 3, 4, 5, 10, 50} {
			walk := newWalk(netip.MustParsePrefix("10.200.0.0/16"), int64(seed))
			for healthy := 1; healthy <= nodes; healthy++ {
				even, most := longestWait(spreadSource{fresh: freshSource{walk}, target: target, seed: seed, nodes: nodes}, target, seed, healthy), nodes
				if healthy < nodes && nodes > 3 {
					most *= 8
				}
				if even > most {
					t.Errorf("seed %d, %d of %d nodes: one waited %d attempts for its turn", seed, healthy, nodes, even)
				}
			}
			even := longestWait(spreadSource{fresh: freshSource{walk}, target: target, seed: seed, nodes: nodes}, target, seed, nodes)
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

// A walk that skips goes on where one that draws as many is.
func TestSkippingIsDrawing(t *testing.T) {
	for _, text := range []string{"10.200.0.7/32", "10.200.0.0/16", "fd00::/64"} {
		for _, n := range []uint64{0, 1, 1000, portCount, 3*portCount + 5} {
			drawn, skipped := newWalk(netip.MustParsePrefix(text), 3), newWalk(netip.MustParsePrefix(text), 3)
			for range n {
				drawn.next(0)
			}
			skipped.skip(n)
			if got, want := skipped.next(0), drawn.next(0); got != want {
				t.Errorf("%s: %s after %d, want %s", text, got, n, want)
			}
		}
	}
}

// An engine that goes on after a kill takes no port of the engine before, while proxies may remember where its flow went.
func TestEngineThatGoesOnTakesFreshPorts(t *testing.T) {
	const draws = 5000
	ports := func(s Shared) map[uint16]bool {
		used := map[uint16]bool{}
		w := newEngine(Config{Seed: 1, Shared: &s}, nil).sharedWalk(Lane{})
		for range draws {
			used[w.next(0).Port()] = true
		}
		return used
	}
	again := func(s Shared) (n int) {
		before := ports(Shared{Seed: 5})
		for port := range ports(s) {
			if before[port] {
				n++
			}
		}
		return n
	}
	if n := again(Shared{Seed: 5, Drawn: draws}); n > 0 {
		t.Errorf("%d ports are used again", n)
	}
	if n := again(Shared{Seed: 5}); n != draws {
		t.Errorf("an engine that starts anew takes %d of the same ports; want %d, or this test shows nothing", n, draws)
	}
}

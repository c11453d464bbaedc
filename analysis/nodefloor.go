package analysis

import (
	"slices"
	"time"
)

// leastGaps is the number of gaps on a path from which their quantile is taken.
const leastGaps = 20

// nodeFloor is how long an outage of one node must last to meet an attempt: 95 % of the gaps between two attempts of a lane over the node are
// no longer. It is that of the path with the longest, and 0 if no measured lane of new connections has several nodes. A load balancer with
// turns makes gaps of N intervals with N nodes, and one that picks nodes at random makes gaps up to three times as long.
func (a *Analysis) nodeFloor() (longest time.Duration) {
	for _, l := range a.Measured() {
		if !l.Opens() {
			continue
		}
		gaps, thinned := l.gapsOfNodes(a)
		if len(gaps) < 2 {
			continue
		}
		for node, all := range gaps {
			if thinned { // the record has no single attempts where nothing happened
				longest = max(longest, l.meanGap(node))
			} else if len(all) >= leastGaps {
				slices.Sort(all)
				longest = max(longest, all[len(all)*95/100])
			}
		}
	}
	return longest
}

// gapsOfNodes are the times between the attempts over each node; thinned reports whether the record has buckets instead of some.
func (l *Lane) gapsOfNodes(a *Analysis) (gaps map[uint16][]time.Duration, thinned bool) {
	gaps, last := map[uint16][]time.Duration{}, map[uint16]time.Duration{}
	for i := range l.Records {
		r := &l.Records[i]
		if a.Nodes[r.Node] == "" {
			continue
		}
		thinned = thinned || r.bucket()
		if before, has := last[r.Node]; has {
			gaps[r.Node] = append(gaps[r.Node], r.Intended-before)
		} else {
			gaps[r.Node] = nil
		}
		last[r.Node] = r.Intended
	}
	return gaps, thinned
}

// meanGap is the mean time between two attempts over a node.
func (l *Lane) meanGap(node uint16) time.Duration {
	attempts := 0
	for i := range l.Records {
		if r := &l.Records[i]; r.Node == node {
			attempts += int(r.N)
		}
	}
	return l.Interval * time.Duration(l.attempts) / time.Duration(max(1, attempts))
}

package reports

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
)

// The faults of one run each have a class of their own, so that an outage tells which faults it holds.
var faultClasses = []record.Class{record.Refused, record.Rejected, record.Unreachable, record.ConnectTimeout, record.Reset, record.Closed, record.ReplyTimeout, record.Stalled, record.Misrouted, record.Delayed}

// faultyRun draws a run with random faults, random changes of the balancer's table and starts that are late by up to
// several gaps.
func faultyRun(t *rapid.T) *lab {
	return faultyRunOf(t, []float64{20, 100, 1000}, func(gap time.Duration) time.Duration {
		return time.Duration(rapid.IntRange(1, 60).Draw(t, "gaps")) * 5 * gap
	})
}

// faultyRunOf is one at some of these rates, for as long as they say.
func faultyRunOf(t *rapid.T, rates []float64, long func(gap time.Duration) time.Duration) *lab {
	s := newLab(rapid.Uint64().Draw(t, "seed"))
	places := nodeNames
	protocol := rapid.SampledFrom([]string{"tcp-new", "udp-fresh", record.ProtocolSticky}).Draw(t, "protocol")
	s.datagrams = protocol != "tcp-new"
	if !s.datagrams && rapid.Bool().Draw(t, "terminating balancer") { // such a one forwards no datagrams
		s.log, places = &balancerLog{}, append(slices.Clone(nodeNames), "") // the way to the balancer can break, too
	}
	s.moment = 0
	s.travel = time.Duration(rapid.IntRange(0, 3000).Draw(t, "travel µs")) * time.Microsecond
	rate := rapid.SampledFrom(rates).Draw(t, "rate")
	gap := time.Duration(float64(time.Second) / rate)
	lateBy := rapid.SampledFrom([]int{1, 100, 3000, 40000}).Draw(t, "late by up to, µs")
	least := time.Duration(1) // between two changes of the balancer's table
	if protocol == record.ProtocolSticky {
		// A flow's way is the sum of its datagrams in their order; one that starts after the next would be another way.
		lateBy = min(lateBy, int(gap/time.Microsecond)/2)
		least = 2 * gap
	}
	s.late = func() time.Duration { return time.Duration(s.random.IntN(lateBy)) * time.Microsecond }
	length := long(gap)
	instant := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Second + time.Duration(rapid.Int64Range(int64(-length)/10, int64(length)*11/10).Draw(t, "at"))/1000*1000
	})
	s.services[webAddress] = &service{name: "web", seed: 7, local: true}
	for i, node := range nodeNames {
		s.pod(simPod{name: "web-" + node, node: node, address: "10.244.0." + string(rune('1'+i)), service: "web", ready: 100 * time.Millisecond})
	}
	some := rapid.Custom(func(t *rapid.T) []string {
		return nodesInOrder(rapid.SliceOfN(rapid.SampledFrom(nodeNames), 1, 3).Draw(t, "nodes")...)
	})
	const first = 200 * time.Millisecond // the first table stands before the lane begins; a change comes after it
	s.balance(webAddress, first, some.Draw(t, "first table")...)
	changes := rapid.SliceOfN(instant, 0, 4).Draw(t, "changes")
	last := first
	for _, at := range slices.Sorted(slices.Values(changes)) {
		if at-last >= least && (at <= time.Second || at >= time.Second+least) { // the lane begins after a second
			last = at
			s.balance(webAddress, at, some.Draw(t, "table")...)
		}
	}
	for _, class := range faultClasses[:rapid.IntRange(0, len(faultClasses)).Draw(t, "faults")] {
		from := instant.Draw(t, "fault")
		to := from + time.Duration(rapid.Int64Range(0, int64(length)/2).Draw(t, "lasts"))/1000*1000
		s.faults = append(s.faults, fault{node: rapid.SampledFrom(places).Draw(t, "on"), anyLane: true, from: from, to: to, class: class})
	}
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: rate, from: time.Second, to: time.Second + length, protocol: protocol})
	return s
}

// The promise of the arithmetic: whatever the faults and however late the starts, each failed attempt is in exactly one
// outage, each fault in one outage per stay of its node in the balancer, and the bounds hold the true duration.
func TestBoundsHoldTheTruth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := faultyRun(rt)
		h := s.write(t)
		a, err := analyse(h)
		if err != nil {
			rt.Fatal(err)
		}
		if err := errors.Join(CheckAgreement(h, a.report()), CheckPaths(h)); err != nil {
			rt.Fatal(err)
		}
		l := a.lanes[0]
		if len(l.records) != len(s.attempts) {
			rt.Fatalf("%d of %d attempts are left", len(l.records), len(s.attempts))
		}
		failed := map[record.Class]int{}
		for _, attempt := range s.attempts {
			if attempt.Class != record.OK {
				failed[attempt.Class]++
			}
		}
		for _, o := range l.outages {
			checkTruth(rt, s, a, o)
			for class, n := range o.classes {
				failed[class] -= n
			}
		}
		for class, n := range failed {
			if n != 0 {
				rt.Fatalf("%d failed attempts (%s) are lost or counted twice", n, class)
			}
		}
		for i, o := range l.outages {
			for _, later := range l.outages[i+1:] {
				for class := range o.classes {
					if later.classes[class] > 0 && o.left == 0 {
						rt.Fatalf("one fault (%s) made two outages on one stay of %s: %v–%v and %v–%v", class, a.nodes[o.node], o.from, o.to, later.from, later.to)
					}
				}
			}
		}
	})
}

func checkTruth(t *rapid.T, s *lab, a *analysis, o *outage) {
	l := o.lane
	begin, end := time.Duration(-1), time.Duration(-1)
	for _, f := range s.faults {
		if o.classes[f.class] == 0 {
			continue
		}
		if f.node != a.nodes[o.node] {
			t.Fatalf("a fault on %s made an outage on %s", f.node, a.nodes[o.node])
		}
		if begin < 0 || f.from < begin {
			begin = f.from
		}
		end = max(end, f.to)
	}
	// What happened before the path was in use, or after, was not measured.
	ts := a.paths.Of(l.Frontend())
	begin, end = max(begin, l.begin), min(end, l.end)
	stayed := &record.Tenure{}
	if a.nodes[o.node] != "" {
		stayed = ts.Tenure(a.nodes[o.node], ts.MemberSince(a.nodes[o.node], o.epoch))
	}
	begin = max(begin, stayed.From)
	if stayed.Left {
		end = min(end, stayed.Until+s.travel)
	}
	truth, unknown := end-begin, time.Duration(0)
	if l.connect == 0 {
		unknown = s.travel // without a good attempt nobody knows how long a packet takes
	}
	if o.lower > truth+unknown || truth > o.upper+unknown {
		t.Fatalf("on %s from %v to %v (%v): bounds %v to %v, the truth is %v (%v to %v)", a.nodes[o.node], o.from, o.to, o.classes, o.lower, o.upper, truth, begin, end)
	}
}

// records makes the records of a lane over one node: a letter for each attempt, a gap apart; '.' is good, 'x' dropped,
// 'd' delayed and 'p' the probe's own fault.
func records(letters string, gap time.Duration) *lane {
	l := &lane{DeclaredLane: &record.DeclaredLane{Lane: record.Lane{Name: "web"}, Interval: gap}}
	for i, c := range letters {
		class := map[rune]record.Class{'.': record.OK, 'x': record.ConnectTimeout, 'd': record.Delayed, 'p': record.Probe}[c]
		l.records = append(l.records, sample{intended: time.Duration(i) * gap, seq: uint32(i), class: class, epoch: -1})
	}
	l.settle()
	return l
}

func TestBoundsOnOnePath(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		letters      string
		from, to     []int // attempts
		lower, upper []time.Duration
	}{
		{".....", nil, nil, nil, nil},
		{"..x..", []int{2}, []int{2}, []time.Duration{0}, []time.Duration{20 * ms}},
		{"..xdx..", []int{2}, []int{4}, []time.Duration{20 * ms}, []time.Duration{40 * ms}},
		{".x.x.", []int{1, 3}, []int{1, 3}, []time.Duration{0, 0}, []time.Duration{20 * ms, 20 * ms}},
		{"xx..", []int{0}, []int{1}, []time.Duration{10 * ms}, []time.Duration{20 * ms}},
		{"..xx", []int{2}, []int{3}, []time.Duration{10 * ms}, []time.Duration{30 * ms}},
		{"xxx", []int{0}, []int{2}, []time.Duration{20 * ms}, []time.Duration{30 * ms}},
		{".xpx.", []int{1}, []int{3}, []time.Duration{20 * ms}, []time.Duration{40 * ms}}, // the probe's fault is neither good nor bad
		{".ppp.", nil, nil, nil, nil}, // nor an outage
	} {
		found := outagesOf(records(c.letters, 10*ms), nil, []string{""})
		if len(found) != len(c.from) {
			t.Errorf("%s: %d outages, want %d", c.letters, len(found), len(c.from))
			continue
		}
		for i, o := range found {
			if o.from != time.Duration(c.from[i])*10*ms || o.to != time.Duration(c.to[i])*10*ms || o.lower != c.lower[i] || o.upper != c.upper[i] {
				t.Errorf("%s: outage %d is %v–%v with bounds %v–%v, want attempts %d to %d with %v–%v", c.letters, i, o.from, o.to, o.lower, o.upper,
					c.from[i], c.to[i], c.lower[i], c.upper[i])
			}
		}
	}
}

// A lane alternates between the paths of a balancer: good attempts on one path do not split the outage of another.
func TestOnlyPathsHaveOutages(t *testing.T) {
	s := newLab(4)
	s.services[webAddress] = &service{name: "web", seed: 7, local: true}
	for _, node := range nodeNames {
		s.pod(simPod{name: "web-" + node, node: node, address: "10.244.0.1", service: "web", ready: 100 * time.Millisecond})
	}
	s.balance(webAddress, 200*time.Millisecond, nodeNames...)
	s.faults = []fault{{node: "node-2", anyLane: true, from: 3 * time.Second, to: 3700 * time.Millisecond, class: record.ConnectTimeout}}
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 1000, from: time.Second, to: 6 * time.Second})
	l := s.report(t).Lanes[0]
	if len(l.Outages) != 1 || l.Outages[0].Node != "node-2" {
		t.Fatalf("one fault of 700 ms on node-2 made these outages: %+v", l.Outages)
	}
	o := l.Outages[0]
	if o.LowerMs > 700 || o.UpperMs < 700 || o.UpperMs-o.LowerMs > 30 {
		t.Errorf("bounds %v to %v ms, want close ones round 700 ms", o.LowerMs, o.UpperMs)
	}
	if l.Dropped != o.Failed() || l.Dropped < 200 || l.Dropped > 270 {
		t.Errorf("%d dropped, %d of them in the outage; about 233 were expected", l.Dropped, o.Failed())
	}
}

func TestAnOutageThatTheBalancerLeavesIsClosedThere(t *testing.T) {
	o := rolling{seed: 5, fallback: false, rollouts: 1}
	r := o.start(o.lab()).report(t)
	if len(r.Lanes[0].Outages) != 1 {
		t.Fatalf("outages: %+v", r.Lanes[0].Outages)
	}
	out := r.Lanes[0].Outages[0]
	left := "; it ended when the load balancer took node-1 out at +41.100 s"
	if truth := float64(checkOut / time.Millisecond); out.LowerMs > truth || out.UpperMs < truth || out.UpperMs > truth+40 {
		t.Errorf("bounds %v to %v ms, the truth is %v ms", out.LowerMs, out.UpperMs, truth)
	}
	if got := out.Cause.Text; len(got) < len(left) || got[len(got)-len(left):] != left {
		t.Errorf("the outage does not say where it was closed: %q", got)
	}
}

// An attempt that starts late meets the system late: two failures a gap apart by intention may be much closer.
func TestLateStartsDoNotStretchTheLowerBound(t *testing.T) {
	const ms = time.Millisecond
	l := records("..xx..", 10*ms)
	l.records[2].late = uint32(9 * ms) // a fault from 28.5 ms to 31 ms hits both
	l.settle()
	o := outagesOf(l, nil, []string{""})[0]
	if truth := 2500 * time.Microsecond; o.lower > truth || o.upper < truth {
		t.Errorf("bounds %v to %v, the truth is %v", o.lower, o.upper, truth)
	}
	if o.from != 20*ms || o.to != 30*ms {
		t.Errorf("charged to %v–%v, want the intended starts 20 ms and 30 ms", o.from, o.to)
	}
}

// A node that enters the balancer while it is broken was not measured before: the outage begins with its entry.
func TestAnOutageFromTheStartBeginsWithTheNodesEntry(t *testing.T) {
	s := newLab(9)
	s.services[webAddress] = &service{name: "web", seed: 7, local: true}
	s.pod(simPod{name: "web-1", node: "node-1", service: "web", ready: 100 * time.Millisecond})
	s.pod(simPod{name: "web-2", node: "node-2", service: "web", ready: 4 * time.Second})
	s.balance(webAddress, 200*time.Millisecond, "node-1")
	s.balance(webAddress, 3500*time.Millisecond, "node-1", "node-2")
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 1000, from: time.Second, to: 6 * time.Second})
	outages := s.report(t).Lanes[0].Outages
	if len(outages) != 1 || outages[0].Node != "node-2" {
		t.Fatalf("outages: %+v", outages)
	}
	if o := outages[0]; o.LowerMs > 500 || o.UpperMs < 500 || o.UpperMs > 520 {
		t.Errorf("bounds %v to %v ms, node-2 was without a pod for 500 ms", o.LowerMs, o.UpperMs)
	}
	if got := outages[0].Cause.Event; got != "balancer entered" {
		t.Errorf("the cause is %q, want the balancer's change", got)
	}
}

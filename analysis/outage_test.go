package analysis

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// faultyRun draws a run with random faults, random changes of the balancer's table and starts that are late by up to
// several gaps.
func faultyRun(t *rapid.T) *recordtest.Lab {
	return faultyRunOf(t, []float64{20, 100, 1000}, func(gap time.Duration) time.Duration {
		return time.Duration(rapid.IntRange(1, 60).Draw(t, "gaps")) * 5 * gap
	})
}

// faultyRunOf is one at some of these rates, for as long as they say.
func faultyRunOf(t *rapid.T, rates []float64, long func(gap time.Duration) time.Duration) *recordtest.Lab {
	s := recordtest.NewLab(rapid.Uint64().Draw(t, "seed"))
	places := recordtest.NodeNames
	protocol := rapid.SampledFrom([]string{"tcp-new", "udp-fresh", record.ProtocolSticky}).Draw(t, "protocol")
	s.Datagrams = protocol != "tcp-new"
	if !s.Datagrams && rapid.Bool().Draw(t, "terminating balancer") { // such a one forwards no datagrams
		s.Log, places = &recordtest.BalancerLog{}, append(slices.Clone(recordtest.NodeNames), "") // the way to the balancer can break, too
	}
	s.Moment = 0
	s.Travel = time.Duration(rapid.IntRange(0, 3000).Draw(t, "travel µs")) * time.Microsecond
	rate := rapid.SampledFrom(rates).Draw(t, "rate")
	gap := time.Duration(float64(time.Second) / rate)
	lateBy := rapid.SampledFrom([]int{1, 100, 3000, 40000}).Draw(t, "late by up to, µs")
	least := time.Duration(1) // between two changes of the balancer's table
	if protocol == record.ProtocolSticky {
		// A flow's way is the sum of its datagrams in their order; one that starts after the next would be another way.
		lateBy = min(lateBy, int(gap/time.Microsecond)/2)
		least = 2 * gap
	}
	s.Late = func() time.Duration { return time.Duration(s.Random.IntN(lateBy)) * time.Microsecond }
	length := long(gap)
	instant := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Second + time.Duration(rapid.Int64Range(int64(-length)/10, int64(length)*11/10).Draw(t, "at"))/1000*1000
	})
	s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "web", Seed: 7, Local: true}
	for i, node := range recordtest.NodeNames {
		s.Pod(recordtest.Pod{Name: "web-" + node, Node: node, Address: "10.244.0." + string(rune('1'+i)), Service: "web", Ready: 100 * time.Millisecond})
	}
	some := rapid.Custom(func(t *rapid.T) []string {
		return recordtest.NodesInOrder(rapid.SliceOfN(rapid.SampledFrom(recordtest.NodeNames), 1, 3).Draw(t, "nodes")...)
	})
	const first = 200 * time.Millisecond // the first table stands before the lane begins; a change comes after it
	s.Balance(recordtest.WebAddress, first, some.Draw(t, "first table")...)
	changes := rapid.SliceOfN(instant, 0, 4).Draw(t, "changes")
	last := first
	for _, at := range slices.Sorted(slices.Values(changes)) {
		if at-last >= least && (at <= time.Second || at >= time.Second+least) { // the lane begins after a second
			last = at
			s.Balance(recordtest.WebAddress, at, some.Draw(t, "table")...)
		}
	}
	for _, class := range recordtest.FaultClasses[:rapid.IntRange(0, len(recordtest.FaultClasses)).Draw(t, "faults")] {
		from := instant.Draw(t, "fault")
		to := from + time.Duration(rapid.Int64Range(0, int64(length)/2).Draw(t, "lasts"))/1000*1000
		s.Faults = append(s.Faults, recordtest.Fault{Node: rapid.SampledFrom(places).Draw(t, "on"), AnyLane: true, From: from, To: to, Class: class})
	}
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: rate, From: time.Second, To: time.Second + length, Protocol: protocol})
	return s
}

// The promise of the arithmetic: whatever the faults and however late the starts, each failed attempt is in exactly one
// outage, each fault in one outage per stay of its node in the balancer, and the bounds hold the true duration.
func TestBoundsHoldTheTruth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := faultyRun(rt)
		h := s.Write(t)
		a, err := New(h)
		if err != nil {
			rt.Fatal(err)
		}
		if err := errors.Join(CheckAgreement(h, a.Report()), CheckPaths(h)); err != nil {
			rt.Fatal(err)
		}
		l := a.Lanes[0]
		if len(l.Records) != len(s.Attempts) {
			rt.Fatalf("%d of %d attempts are left", len(l.Records), len(s.Attempts))
		}
		failed := map[record.Class]int{}
		for _, attempt := range s.Attempts {
			if attempt.Class != record.OK {
				failed[attempt.Class]++
			}
		}
		for _, o := range l.Outages {
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
		for i, o := range l.Outages {
			for _, later := range l.Outages[i+1:] {
				for class := range o.classes {
					if later.classes[class] > 0 && o.left == 0 {
						rt.Fatalf("one fault (%s) made two outages on one stay of %s: %v–%v and %v–%v", class, a.Nodes[o.node], o.from, o.to, later.from, later.to)
					}
				}
			}
		}
	})
}

func checkTruth(t *rapid.T, s *recordtest.Lab, a *Analysis, o *Outage) {
	l := o.Lane
	begin, end := time.Duration(-1), time.Duration(-1)
	for _, f := range s.Faults {
		if o.classes[f.Class] == 0 {
			continue
		}
		if f.Node != a.Nodes[o.node] {
			t.Fatalf("a fault on %s made an outage on %s", f.Node, a.Nodes[o.node])
		}
		if begin < 0 || f.From < begin {
			begin = f.From
		}
		end = max(end, f.To)
	}
	// What happened before the path was in use, or after, was not measured.
	ts := a.Paths.Of(l.Frontend())
	begin, end = max(begin, l.Begin), min(end, l.end)
	stayed := &record.Tenure{}
	if a.Nodes[o.node] != "" {
		stayed = ts.Tenure(a.Nodes[o.node], ts.MemberSince(a.Nodes[o.node], o.epoch))
	}
	begin = max(begin, stayed.From)
	if stayed.Left {
		end = min(end, stayed.Until+s.Travel)
	}
	truth, unknown := end-begin, time.Duration(0)
	if l.connect == 0 {
		unknown = s.Travel // without a good attempt nobody knows how long a packet takes
	}
	if o.lower > truth+unknown || truth > o.upper+unknown {
		t.Fatalf("on %s from %v to %v (%v): bounds %v to %v, the truth is %v (%v to %v)", a.Nodes[o.node], o.from, o.to, o.classes, o.lower, o.upper, truth, begin, end)
	}
}

// records makes the records of a lane over one node: a letter for each attempt, a gap apart; '.' is good, 'x' dropped,
// 'd' delayed and 'p' the probe's own fault.
func records(letters string, gap time.Duration) *Lane {
	l := &Lane{DeclaredLane: &record.DeclaredLane{Lane: record.Lane{Name: "web"}, Interval: gap}}
	for i, c := range letters {
		class := map[rune]record.Class{'.': record.OK, 'x': record.ConnectTimeout, 'd': record.Delayed, 'p': record.Probe}[c]
		l.Records = append(l.Records, Sample{Intended: time.Duration(i) * gap, Seq: uint32(i), Class: class, epoch: -1})
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
	s := recordtest.NewLab(4)
	s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "web", Seed: 7, Local: true}
	for _, node := range recordtest.NodeNames {
		s.Pod(recordtest.Pod{Name: "web-" + node, Node: node, Address: "10.244.0.1", Service: "web", Ready: 100 * time.Millisecond})
	}
	s.Balance(recordtest.WebAddress, 200*time.Millisecond, recordtest.NodeNames...)
	s.Faults = []recordtest.Fault{{Node: "node-2", AnyLane: true, From: 3 * time.Second, To: 3700 * time.Millisecond, Class: record.ConnectTimeout}}
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 1000, From: time.Second, To: 6 * time.Second})
	l := reportOf(t, s).Lanes[0]
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
	o := recordtest.Rollout{Seed: 5, Fallback: false, Rollouts: 1}
	r := reportOf(t, o.Start(o.Lab()))
	if len(r.Lanes[0].Outages) != 1 {
		t.Fatalf("outages: %+v", r.Lanes[0].Outages)
	}
	out := r.Lanes[0].Outages[0]
	left := "; it ended when the load balancer took node-1 out at +41.100 s"
	if truth := float64(recordtest.CheckOut / time.Millisecond); out.LowerMs > truth || out.UpperMs < truth || out.UpperMs > truth+40 {
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
	l.Records[2].late = uint32(9 * ms) // a fault from 28.5 ms to 31 ms hits both
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
	s := recordtest.NewLab(9)
	s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "web", Seed: 7, Local: true}
	s.Pod(recordtest.Pod{Name: "web-1", Node: "node-1", Service: "web", Ready: 100 * time.Millisecond})
	s.Pod(recordtest.Pod{Name: "web-2", Node: "node-2", Service: "web", Ready: 4 * time.Second})
	s.Balance(recordtest.WebAddress, 200*time.Millisecond, "node-1")
	s.Balance(recordtest.WebAddress, 3500*time.Millisecond, "node-1", "node-2")
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 1000, From: time.Second, To: 6 * time.Second})
	outages := reportOf(t, s).Lanes[0].Outages
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

// An outage of connections that stayed on a node after its removal did not end by that removal.
func TestAnEarlierRemovalEndsNoOutage(t *testing.T) {
	for until, want := range map[time.Duration]time.Duration{40 * time.Second: 0, 61 * time.Second: 61 * time.Second} {
		l := &Lane{end: 90 * time.Second}
		p := &pathState{tenure: &record.Tenure{Until: until, Left: true}}
		o := p.take(l, &Sample{Intended: 60 * time.Second, Class: record.Closed})
		p.close(l, nil)
		if o.open || o.left != want {
			t.Errorf("removed at %s: the outage at +60 s ended by the removal at %s, open %t; want %s", until, o.left, o.open, want)
		}
	}
}

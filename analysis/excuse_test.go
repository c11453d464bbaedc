package analysis

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// powerOff is a run in which node-2 loses power, with the excuse for it.
func powerOff() *recordtest.Lab {
	s := recordtest.Disturbed(recordtest.OffAt + 18*time.Second)
	s.Excuse(record.PathNode, "node-2", recordtest.OffAt, recordtest.OffAt+recordtest.ExcusedFor, 0)
	s.Lose("node-2", recordtest.OffAt, recordtest.OffAt+18*time.Second, record.ConnectTimeout)
	s.Measure()
	return s
}

// Excused losses are in the report by its schema, and count in its totals. A thinned record gives the same.
func TestExcusedLossesInReports(t *testing.T) {
	r := reportOf(t, powerOff())
	checkSchema(t, r)
	if len(r.Excused) != 1 || r.Excused[0].Dropped != r.Totals.Dropped || r.Totals.Dropped != r.Totals.ByClass["connect-timeout"] || r.Totals.Dropped == 0 {
		t.Errorf("%+v of %+v", r.Excused, r.Totals)
	}
	thin, err := Build(powerOff().Thinned(t, 0))
	if err != nil || thin.Verdict != Pass || !reflect.DeepEqual(thin.Excused, r.Excused) {
		t.Errorf("thinned: %s %q %+v, want %+v; %v", thin.Verdict, thin.Reasons, thin.Excused, r.Excused, err)
	}
}

// An attempt that was under way when the loss became unavoidable is excused; one that had all its time before is not.
func TestAttemptsUnderWayAreExcused(t *testing.T) {
	for before, want := range map[time.Duration]Verdict{time.Millisecond: Pass, 2 * time.Millisecond: Pass, 10 * time.Millisecond: Fail} {
		s := powerOff()
		for i := range s.Attempts { // the last one before it
			if a := &s.Attempts[i]; a.Lane == 0 && a.Intended > recordtest.OffAt-10*time.Millisecond && a.Intended < recordtest.OffAt {
				a.Start = recordtest.OffAt - before
				a.Intended = a.Start
				*a = recordtest.FailedAttempt(record.Attempt{Seq: a.Seq, Intended: a.Intended, Start: a.Start, Source: sourceOver(s, "node-2")}, record.ConnectTimeout)
			}
		}
		if r := reportOf(t, s); r.Verdict != want {
			t.Errorf("%v before: %s %q, want %s", before, r.Verdict, r.Reasons, want)
		}
	}
}

// An attempt that had failed before the loss became unavoidable is not excused, although others of its age were under way.
func TestAttemptsThatHadFailedAreNotExcused(t *testing.T) {
	s := powerOff()
	slowed(s, 1, 60*time.Millisecond, 0, recordtest.OffAt, true)
	changed := false
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Lane == 0 && a.Intended > recordtest.OffAt-30*time.Millisecond && a.Intended <= recordtest.OffAt-20*time.Millisecond {
			changed = true
			*a = recordtest.FailedAttempt(record.Attempt{Seq: a.Seq, Intended: a.Intended, Start: a.Intended, Source: sourceOver(s, "node-2")}, record.Unreachable)
		}
	}
	if r := reportOf(t, s); r.Verdict != Fail || !changed {
		t.Errorf("%s %q", r.Verdict, r.Reasons)
	}
}

// A control lane's attempt that was under way when the scenario began may have met its first step. One that had all its time before is a
// false alarm.
func TestControlAttemptsUnderWayAreNoAlarm(t *testing.T) {
	for before, want := range map[time.Duration]Verdict{1500 * time.Microsecond: Pass, 15 * time.Millisecond: Invalid} {
		s := recordtest.Clean().Lab()
		recordtest.Clean().Start(s)
		for i := range s.Attempts { // the last one before the scenario
			if a := &s.Attempts[i]; a.Lane == 1 && a.Intended > recordtest.ScenarioAt-20*time.Millisecond && a.Intended < recordtest.ScenarioAt {
				a.Start = recordtest.ScenarioAt - before
				a.Intended = a.Start
				*a = recordtest.FailedAttempt(record.Attempt{Lane: 1, Seq: a.Seq, Intended: a.Intended, Start: a.Start, Connect: 200 * time.Microsecond, Source: a.Source},
					record.ReplyTimeout)
			}
		}
		if r := reportOf(t, s); r.Verdict != want {
			t.Errorf("%v before: %s %q, want %s", before, r.Verdict, r.Reasons, want)
		}
	}
}

// A guard with a window takes nothing from a loss at another time, and what failed in its window proves nothing. A run without another
// loss is invalid, as is one of which too large a part is in windows.
func TestGuardWithAWindow(t *testing.T) {
	stall := func(s *recordtest.Lab, length time.Duration) *recordtest.Lab {
		from := recordtest.Clean().EndAt() - 18*time.Second
		s.Event(from+length, record.KindGuard, "", "scheduler", "this machine did not run", "fromNs", strconv.Itoa(int(from)), "untilNs", strconv.Itoa(int(from+length)))
		for i := range s.Attempts {
			if a := &s.Attempts[i]; a.Lane == 0 && a.Intended > from+length/2 && a.Intended < from+length/2+100*time.Millisecond {
				*a = recordtest.FailedAttempt(record.Attempt{Seq: a.Seq, Intended: a.Intended, Start: a.Start, Source: a.Source},
					[]record.Class{record.ConnectTimeout, record.Probe}[a.Seq%2])
			}
		}
		return s
	}
	started := func(o recordtest.Rollout) *recordtest.Lab { return o.Start(o.Lab()) }
	elsewhere := reportOf(t, started(recordtest.Failing()))
	for name, c := range map[string]struct {
		lab     *recordtest.Lab
		want    Verdict
		dropped int // that are not excused
	}{
		"no other loss":  {stall(started(recordtest.Clean()), 3*time.Second), Invalid, 0},
		"loss elsewhere": {stall(started(recordtest.Failing()), 3*time.Second), Fail, elsewhere.Totals.Dropped},
		"too long":       {stall(started(recordtest.Failing()), 15*time.Second), Invalid, 0},
		"impossible":     {stall(started(recordtest.Failing()), -time.Second), Invalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := reportOf(t, c.lab)
			if r.Verdict != c.want {
				t.Fatalf("%s %q, want %s", r.Verdict, r.Reasons, c.want)
			}
			if c.want == Fail && (r.Totals.Dropped-r.ExcusedAttempts() != c.dropped || r.ExcusedAttempts() == 0) {
				t.Errorf("%d of %d are excused, want all but %d", r.ExcusedAttempts(), r.Totals.Dropped, c.dropped)
			}
		})
	}
}

// sourceOver is the source of an attempt that went over a node.
func sourceOver(s *recordtest.Lab, node string) netip.AddrPort {
	web := s.Services[recordtest.WebAddress]
	for _, a := range s.Attempts {
		if a.Lane == 0 && web.Choose(a.Source, recordtest.WebAddress, recordtest.OffAt-time.Second) == node {
			return a.Source
		}
	}
	panic("no attempt goes over " + node)
}

// A pod that ends before the load balancer can have removed its node is an excuse for that node alone, for that time, and not where
// another pod is ready.
func TestPodsThatEndAreExcusesForTheirNodes(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		most   time.Duration
		change func(*recordtest.Lab)
		want   Verdict
	}{
		"all of it":            {most: recordtest.CheckOut + time.Second, want: Pass},
		"too long":             {most: recordtest.CheckOut - time.Second, want: Fail},
		"on another node":      {most: recordtest.CheckOut + time.Second, node: "node-3", want: Fail},
		"recorded 10 ms late":  {most: recordtest.CheckOut + time.Second, change: toldLate(10 * time.Millisecond), want: Pass},
		"recorded 300 ms late": {most: recordtest.CheckOut + time.Second, change: toldLate(300 * time.Millisecond), want: Fail},
		"two pods a node":      {most: recordtest.CheckOut + time.Second, change: secondPods, want: Fail},
		"another pod later":    {most: recordtest.CheckOut + time.Second, change: laterPods(2 * time.Second), want: Fail},
		"it had no time yet":   {most: recordtest.CheckOut + time.Second, change: laterPods(time.Minute), want: Pass},
		"elsewhere as well": {most: recordtest.CheckOut + time.Second, want: Fail, change: func(s *recordtest.Lab) {
			s.Faults = append(s.Faults, recordtest.Fault{Node: "node-2", Lane: 0, From: recordtest.ScenarioAt + 15*time.Second, To: recordtest.ScenarioAt + 16*time.Second, Class: record.Rejected})
		}},
	} {
		o := recordtest.Failing()
		s := o.Lab()
		s.Excuse(record.PathExits, c.node, recordtest.ScenarioAt, o.EndAt(), 0, record.Rejected)
		last := s.Events[len(s.Events)-1].Attrs
		last["afterNs"], last["mostNs"] = "0", strconv.FormatInt(int64(c.most), 10)
		if c.change != nil {
			c.change(s)
		}
		if r := reportOf(t, o.Start(s)); r.Verdict != c.want {
			t.Errorf("%s: %s %q, want %s", name, r.Verdict, r.Reasons, c.want)
		}
	}
}

// toldLate records the end of pods later than it was.
func toldLate(by time.Duration) func(*recordtest.Lab) {
	return func(s *recordtest.Lab) {
		for i := range s.Events {
			if e := &s.Events[i]; e.Kind == record.KindPod && e.Attrs["state"] == "terminating" {
				e.At += by
			}
		}
	}
}

// laterPods gives each node another pod a second after its own began to terminate, which a proxy must follow within a time.
func laterPods(follow time.Duration) func(*recordtest.Lab) {
	return func(s *recordtest.Lab) {
		s.Events[len(s.Events)-1].Attrs["followNs"] = strconv.FormatInt(int64(follow), 10)
		ends := map[string]time.Duration{}
		for _, e := range s.Events {
			if e.Kind == record.KindPod && e.Attrs["state"] == "terminating" {
				ends["second-"+e.Node] = e.At
			}
		}
		secondPods(s)
		s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool {
			_, has := ends[e.Attrs["pod"]]
			return strings.HasPrefix(e.Attrs["pod"], "second-") && !has
		})
		for i := range s.Events {
			if at, is := ends[s.Events[i].Attrs["pod"]]; is {
				s.Events[i].At = at + time.Second
			}
		}
	}
}

// secondPods gives each node a second ready pod, which the subject does not use.
func secondPods(s *recordtest.Lab) {
	for i, node := range recordtest.NodeNames {
		name, ip := "second-"+node, "10.244.9."+strconv.Itoa(i+1)
		s.Event(4*time.Second, record.KindPod, node, name, "ready", "state", "ready", "pod", name, "node", node, "ip", ip)
		s.Event(4*time.Second, record.KindEndpoint, "", "default/web", "ready", "service", "default/web", "address", ip, "pod", name, "state", "ready")
	}
}

// Proxies end the connections of a pod that is no longer an endpoint. Then the kernel cannot tell any more that an attempt went to it.
func TestLostConnectionsOfPodsThatLeftAreExcused(t *testing.T) {
	from := recordtest.OffAt + time.Second
	for name, c := range map[string]struct {
		left            time.Duration
		chosen, address string
		want            Verdict
	}{
		"it left before the question":  {left: from + 201*time.Millisecond, want: Pass},
		"another pod got the next SYN": {left: from + 201*time.Millisecond, chosen: "node-1", address: "10.244.1.9:8080", want: Pass},
		"it left long after it":        {left: from + 10*time.Second, want: Fail},
		"it left before the attempt":   {left: from - time.Second, want: Fail},
		"another pod got all":          {left: from + 10*time.Second, chosen: "node-1", address: "10.244.1.9:8080", want: Fail},
	} {
		s := recordtest.Disturbed(recordtest.OffAt + 18*time.Second)
		s.Excuse(record.PathPods, "node-2", recordtest.OffAt, recordtest.OffAt+recordtest.ExcusedFor, 1.0/3)
		s.Lose("node-1", from, from+200*time.Millisecond, record.ConnectTimeout)
		s.Event(c.left, record.KindEndpoint, "node-2", "web-node-2", "unready", "service", "default/web", "address", "10.244.2.9", "pod", "web-node-2", "state", "unready")
		s.Measure()
		s.Choose(func(int) (node, address string, asked bool) { return c.chosen, c.address, true })
		if r := reportOf(t, s); r.Verdict != c.want || r.Totals.Dropped == 0 {
			t.Errorf("%s: %s %q of %+v, want %s", name, r.Verdict, r.Reasons, r.Totals, c.want)
		}
	}
}

// A proxy that cannot follow the end of a pod loses that pod's share of the connections over its node. One that loses more of them fails,
// and so does one that loses the share over another node.
func TestAShareOfANodeIsExcused(t *testing.T) {
	const until = recordtest.OffAt + recordtest.ExcusedFor
	for name, c := range map[string]struct {
		node string
		of   int // one of so many attempts over the node is lost
		want Verdict
	}{
		"a third of the node":     {"node-2", 3, Pass},
		"half of the node":        {"node-2", 2, Fail},
		"all of the node":         {"node-2", 1, Fail},
		"a third of another node": {"node-1", 3, Fail},
	} {
		s := recordtest.Disturbed(until)
		s.Excuse(record.PathNode, "node-2", recordtest.OffAt, until, 1.0/3)
		s.Measure()
		over := 0
		for i := range s.Attempts {
			a := &s.Attempts[i]
			if a.Lane != 0 || a.Start < recordtest.OffAt || a.Start >= until || s.Services[recordtest.WebAddress].Choose(a.Source, recordtest.WebAddress, a.Start) != c.node {
				continue
			}
			if over++; over%c.of == 0 {
				*a = recordtest.FailedAttempt(record.Attempt{Seq: a.Seq, Intended: a.Intended, Start: a.Start, Source: a.Source}, record.ConnectTimeout)
			}
		}
		if r := reportOf(t, s); r.Verdict != c.want || over < 500 {
			t.Errorf("%s of %d attempts: %s %q, want %s", name, over, r.Verdict, r.Reasons, c.want)
		}
	}
}

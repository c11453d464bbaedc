package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// foreign puts a foreign rule on node-2 that stands from the given time on, until the given time unless that is 0.
func foreign(s *recordtest.Lab, from, to time.Duration) {
	s.Event(from, record.KindInterference, "node-2", "nftables", "begin", "state", "begin", "id", "1", "what", "a foreign rule (policy) was put in on node-2")
	if to > 0 {
		s.Event(to, record.KindInterference, "node-2", "nftables", "end", "state", "end", "id", "1")
	}
}

// What a foreign rule takes away is charged to it by name, also long after it was put in.
func TestAForeignRuleExplainsWhatFailsWhileItStands(t *testing.T) {
	for name, from := range map[string]time.Duration{"at once": recordtest.LossAt - 10*time.Millisecond, "long after": recordtest.LossAt - 12*time.Second} {
		s := recordtest.DropOnNode2(false)
		foreign(s, from, recordtest.LossAt+time.Second)
		c := causeOf(t, s)
		if c.Event != "foreign begin" || !strings.HasPrefix(c.Text, "a foreign rule (policy) was put in on node-2 ") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// The red twins: a rule that is gone, one that is not there yet, and behind Local one of another node explain nothing.
func TestAForeignRuleThatDoesNotStandExplainsNothing(t *testing.T) {
	for name, put := range map[string]func(s *recordtest.Lab){
		"gone":  func(s *recordtest.Lab) { foreign(s, recordtest.LossAt-12*time.Second, recordtest.LossAt-6*time.Second) },
		"later": func(s *recordtest.Lab) { foreign(s, recordtest.LossAt+10*time.Second, 0) },
		"another node": func(s *recordtest.Lab) {
			foreign(s, recordtest.LossAt-time.Second, 0)
			s.Events[len(s.Events)-1].Node = "node-1"
		},
	} {
		s := recordtest.DropOnNode2(name == "another node")
		put(s)
		if c := causeOf(t, s); c.Event == "foreign begin" {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// What happened just before counts more than what has stood for long.
func TestAnEventJustBeforeComesBeforeWhatStands(t *testing.T) {
	s := recordtest.DropOnNode2(false)
	foreign(s, recordtest.LossAt-12*time.Second, 0)
	s.Event(recordtest.LossAt-10*time.Millisecond, record.KindProxy, "node-2", "bundled", "killed", "state", "killed")
	if c := causeOf(t, s); c.Event != "proxy killed" {
		t.Errorf("%+v", c)
	}
}

// A node without power explains what fails over it, and for a while what others send to its pods; not behind Local, where
// they send it nothing.
func TestANodeWithoutPowerExplainsWhatFails(t *testing.T) {
	for _, c := range []struct {
		name, node string
		local      bool
		before     time.Duration
		want       bool
	}{
		{"over it", "node-2", true, 30 * time.Second, true},
		{"over another", "node-1", false, 30 * time.Second, true},
		{"over another, behind Local", "node-1", true, 30 * time.Second, false},
	} {
		s := recordtest.DropOnNode2(c.local)
		s.Event(recordtest.LossAt-c.before, record.KindNode, c.node, c.node, c.node+" lost power", "state", "off")
		cause := causeOf(t, s)
		if got := strings.HasPrefix(cause.Text, c.node+" lost power 30"); got != c.want {
			t.Errorf("%s: %+v", c.name, cause)
		}
	}
}

// The proxy and the pods of a node end with its power, which is what explains the failures; what ends at a node that has power is
// not explained by one that had none earlier.
func TestWhatEndsWithItsNodeIsNoCauseBesideIt(t *testing.T) {
	for _, c := range []struct {
		name string
		back bool
		want string
	}{{"without power", false, "node off"}, {"with power again", true, "proxy exited"}} {
		s := recordtest.DropOnNode2(false)
		s.Event(recordtest.LossAt-2*time.Second, record.KindNode, "node-2", "node-2", "off", "state", "off")
		if c.back {
			s.Event(recordtest.LossAt-time.Second, record.KindNode, "node-2", "node-2", "on", "state", "on")
		}
		s.Event(recordtest.LossAt-100*time.Millisecond, record.KindProxy, "node-2", "bundled", "exited", "state", "exited")
		s.Event(recordtest.LossAt-90*time.Millisecond, record.KindPod, "node-2", "web-1", "exited", "state", "exited")
		if cause := causeOf(t, s); cause.Event != c.want {
			t.Errorf("%s: %+v, want %s", c.name, cause, c.want)
		}
	}
}

// The kernel's word decides between a node without power and a pod elsewhere that exited later: attempts given to the node's pod are
// explained by the node; those given to the other pod, or to nobody knows whom, by the exit.
func TestTheNodeOfThePodThatTheKernelChoseIsTheCause(t *testing.T) {
	for _, c := range []struct{ name, chosen, want string }{
		{"a pod of the dark node", "10.244.1.9:8080", "node off"},
		{"the pod that exited", "10.244.2.9:8080", "pod exited"},
		{"nobody was asked", "", "pod exited"},
	} {
		s := recordtest.DropOnNode2(false)
		s.Event(recordtest.LossAt-6*time.Second, record.KindNode, "node-1", "node-1", "off", "state", "off")
		s.Event(recordtest.LossAt-100*time.Millisecond, record.KindPod, "node-2", "web-node-2", "exited", "state", "exited", "pod", "web-node-2", "node", "node-2")
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 300, From: 5 * time.Second, To: 60 * time.Second})
		s.Choose(func(int) (string, string, bool) { return "node-2", c.chosen, c.chosen != "" })
		if cause := outages(t, reportOf(t, s))[0].Cause; cause.Event != c.want {
			t.Errorf("%s: %+v, want %s", c.name, cause, c.want)
		}
	}
}

// At one attempt a second the beginning of an outage is known to some seconds only, to three here, which makes ages count less, of what stands as
// of what happened. Where nobody asked the kernel, a pod's exit and the loss of power of another node are both named: attempts over
// this node may have been given to either's pod.
func TestBesideANodeWithoutPowerAnExitIsNotTheOnlyCause(t *testing.T) {
	for _, c := range []struct {
		name      string
		rate      float64
		exit, off time.Duration // before the outage; off is 0 for none
		chosen    string
		want, or  string
	}{
		{"the older exit, at 1/s", 1, 7100 * time.Millisecond, 5700 * time.Millisecond, "",
			"node-1 lost power 5.70 s before", ", or pod web-node-2 on node-2 exited 7.10 s before"},
		{"the later exit, at 1/s", 1, 100 * time.Millisecond, 6 * time.Second, "",
			"pod web-node-2 on node-2 exited 100 ms before", ", or node-1 lost power 6.00 s before"},
		{"the later exit", 300, 100 * time.Millisecond, 6 * time.Second, "",
			"pod web-node-2 on node-2 exited 100 ms before", ", or node-1 lost power 6.00 s before"},
		{"the exit alone", 1, 7100 * time.Millisecond, 0, "", "pod web-node-2 on node-2 exited 7.10 s before", ""},
		{"given to the dark node's pod", 1, 7100 * time.Millisecond, 5700 * time.Millisecond, "10.244.1.9:8080", "node-1 lost power 5.70 s before", ""},
		{"given to the pod that exited", 1, 4100 * time.Millisecond, 5700 * time.Millisecond, "10.244.2.9:8080", "pod web-node-2 on node-2 exited 4.10 s before", ""},
	} {
		s := recordtest.DropOnNode2(false)
		s.Faults[0].To = recordtest.LossAt + 3*time.Second
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: c.rate, From: 11 * time.Second, To: 60 * time.Second})
		first := s.Attempts[slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Class != record.OK })].Intended
		if c.off > 0 {
			s.Event(first-c.off, record.KindNode, "node-1", "node-1", "off", "state", "off")
		}
		s.Event(first-c.exit, record.KindPod, "node-2", "web-node-2", "exited", "state", "exited", "pod", "web-node-2", "node", "node-2")
		s.Choose(func(int) (string, string, bool) { return "node-2", c.chosen, c.chosen != "" })
		cause := outages(t, reportOf(t, s))[0].Cause
		if !strings.HasPrefix(cause.Text, c.want) || !strings.Contains(cause.Text, c.or) || (c.or == "") == strings.Contains(cause.Text, ", or ") {
			t.Errorf("%s: %+v", c.name, cause)
		}
	}
}

// Nothing passes over a node without power, whatever ends elsewhere.
func TestTheOwnNodesLossOfPowerComesBeforeAnExitElsewhere(t *testing.T) {
	s := recordtest.DropOnNode2(false)
	s.Event(recordtest.LossAt-30*time.Second, record.KindNode, "node-2", "node-2", "off", "state", "off")
	s.Event(recordtest.LossAt-10*time.Millisecond, record.KindPod, "node-3", "web-node-3", "exited", "state", "exited", "pod", "web-node-3", "node", "node-3")
	if c := causeOf(t, s); c.Event != "node off" || strings.Contains(c.Text, ", or ") {
		t.Errorf("%+v", c)
	}
}

func TestANodeThatIsBackExplainsNothing(t *testing.T) {
	s := recordtest.DropOnNode2(false)
	s.Event(recordtest.LossAt-20*time.Second, record.KindNode, "node-2", "node-2", "off", "state", "off")
	s.Event(recordtest.LossAt-10*time.Second, record.KindNode, "node-2", "node-2", "on", "state", "on")
	if c := causeOf(t, s); c.Event == "node off" {
		t.Errorf("%+v", c)
	}
}

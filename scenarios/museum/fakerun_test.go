package museum

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// fakeRun is a simulated run of the Service web behind the load balancer passthrough.
type fakeRun struct {
	scenario   string
	params     map[string]string
	events     []record.Event
	losses     []loss
	noProof    bool
	every      time.Duration    // between the attempts of a lane; interval when 0
	nodes      []string         // of the cluster; not in the record when nil
	end        time.Duration    // 90 s when 0
	onePod     bool             // all open connections go to the pod web-1
	long       time.Duration    // end of lane tcp-long; 0 without that lane
	longLost   time.Duration    // from when on its attempts get no reply; 0 for never
	longFor    time.Duration    // how long they get none; 0 for the rest of the run
	longClass  record.Class     // of those attempts; reply-timeout when 0
	otherPod   [2]time.Duration // from when until when web-2 answers new connections in the place of web-1
	freshUntil time.Duration    // end of the answers of lane udp-fresh; 0 without that lane
	unserved   time.Duration    // begin of the answers of a lane to a port without a Service; 0 without that lane
	masquerade time.Duration    // from when on pods see the address of a node as the client's; 0 for never
	// controlPlane is that of the run; replay when empty.
	controlPlane string
	// flow returns the pod that answers the UDP flow at a time, empty for none; nil without a UDP flow.
	flow func(at time.Duration) string
	// flowClass returns the class of an unanswered datagram; nil means reply-timeout.
	flowClass func(at time.Duration) record.Class
}

// loss is a period in which all attempts over a node fail.
type loss struct {
	node     string
	from, to time.Duration
	class    record.Class
}

const (
	scenarioAt = 10 * time.Second
	interval   = 20 * time.Millisecond
)

var (
	webAddress    = netip.MustParseAddrPort("203.0.113.10:80")
	canaryAddress = netip.MustParseAddrPort("203.0.113.11:80")
)

func (s *fakeRun) event(at time.Duration, node, object string, body record.Body) {
	s.events = append(s.events, record.Event{At: at, Node: node, Object: object, Text: object, Body: body})
}

// pod adds the events of a pod's new state and of its endpoint.
func (s *fakeRun) pod(at time.Duration, pod, node string, state record.PodState) {
	s.event(at, node, pod, record.Pod{Pod: pod, Node: node, State: state, IP: "10.244." + strings.TrimPrefix(node, "node-") + ".2"})
	if endpoint := map[record.PodState]record.EndpointState{record.PodReady: record.EndpointReady, record.PodTerminating: record.EndpointServingTerminating,
		record.PodRemoved: record.EndpointRemoved}[state]; endpoint != "" {
		s.event(at+10*time.Millisecond, node, pod, record.Endpoint{Service: "web", Pod: pod, State: endpoint})
	}
}

// balance sets a Service's membership.
func (s *fakeRun) balance(at time.Duration, service string, address netip.AddrPort, nodes ...string) {
	seed := uint32(1)
	s.event(at, "", "default/"+service, record.Membership{Service: "default/" + service, Address: address.Addr(), Port: address.Port(), Protocol: "tcp",
		Nodes: nodes, All: nodes, Policy: record.BalancerSticky, Seed: &seed, From: &at})
}

func (s *fakeRun) lane(id uint16, name, service string, address netip.AddrPort, control bool) {
	s.event(time.Second, "", name, record.Lane{ID: id, Name: name, Service: service, Client: "client", Target: address.String(), Protocol: "tcp-new",
		Policy: "fresh", Rate: s.rate(), Dial: 3 * time.Second, Reply: time.Second, Local: true, Control: control})
}

func (s *fakeRun) rate() float64 { return float64(time.Second) / float64(s.every) }

// record writes the history, with the phases, steps, lanes and proof of a valid run, and opens it.
func (s *fakeRun) record(t *testing.T) *Record {
	t.Helper()
	s.end, s.every = cmp.Or(s.end, 90*time.Second), cmp.Or(s.every, interval)
	for name, at := range map[string]time.Duration{"setup": 0, "baseline": time.Second, "scenario": scenarioAt, "end": s.end} {
		s.event(at, "", name, record.Phase{})
	}
	s.event(scenarioAt, "", "the step", record.Step{State: record.StepBegin})
	s.event(s.end-time.Second, "", "the step", record.Step{State: record.StepEnd})
	s.lane(0, "tcp-new", "web", webAddress, false)
	s.lane(1, "canary", "canary", canaryAddress, true)
	if s.long > 0 {
		s.event(time.Second, "", "tcp-long", record.Lane{ID: 2, Name: "tcp-long", Service: "web", Target: webAddress.String(), Protocol: "tcp-long",
			Policy: "fresh", Rate: s.rate(), Dial: 3 * time.Second, Reply: time.Second, Partial: true})
	}
	if s.flow != nil {
		s.event(time.Second, "", "udp-sticky", record.Lane{ID: 3, Name: "udp-sticky", Service: "web", Target: webAddress.String(), Protocol: "udp-sticky",
			Policy: "fresh", Rate: s.rate(), Dial: 3 * time.Second, Reply: time.Second})
	}
	if s.freshUntil > 0 {
		s.event(time.Second, "", "udp-fresh", record.Lane{ID: 4, Name: "udp-fresh", Service: "web", Target: webAddress.String(), Protocol: "udp-fresh",
			Policy: "fresh", Rate: s.rate(), Dial: 3 * time.Second, Reply: time.Second})
	}
	if s.unserved > 0 {
		s.event(time.Second, "", "unserved", record.Lane{ID: 5, Name: "unserved", Service: "web", Target: "10.96.0.1:10256", Protocol: record.ProtocolDial,
			Policy: "fresh", Rate: s.rate(), Dial: 3 * time.Second, Reply: time.Second, Control: true, Role: record.RoleUnserved, Node: "node-1"})
	}
	s.balance(500*time.Millisecond, "canary", canaryAddress, "node-9")
	if !s.noProof {
		from, to := 3*time.Second, 3100*time.Millisecond
		s.losses = append(s.losses, loss{"node-9", from, to, record.Delayed})
		s.event(from, "", "proof", record.Fault{Fault: "drop", State: record.FaultBegin, ID: "proof", Lane: "canary", Control: true})
		s.event(to, "", "proof", record.Fault{Fault: "drop", State: record.FaultEnd, ID: "proof", Lane: "canary", Control: true})
	}
	slices.SortStableFunc(s.events, func(x, y record.Event) int { return cmp.Compare(x.At, y.At) })
	return s.write(t)
}

func (s *fakeRun) write(t *testing.T) *Record {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "history")
	w, err := record.NewHistoryWriter(dir, record.Run{Scenario: s.scenario, Parameters: s.params, Seed: 1, Clock: "virtual", ControlPlane: cmp.Or(s.controlPlane, "replay"), Nodes: s.nodes, Kernel: record.Kernel{Kind: "vm"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.events {
		w.Event(e)
	}
	for seq := 0; ; seq++ {
		at := time.Second + 5*time.Millisecond + time.Duration(seq)*s.every
		if at >= s.end {
			break
		}
		plain := s.attempt(0, uint64(seq), at, webAddress)
		if at >= s.otherPod[0] && at < s.otherPod[1] && plain.Class == record.OK {
			plain.Backend = "web-2"
		}
		plain.Client = record.ClientUnchanged
		if s.masquerade > 0 && at >= s.masquerade {
			plain.Client = "10.0.0.2"
		}
		w.Attempt(plain)
		if at < s.long {
			a := s.attempt(2, uint64(seq), at, webAddress)
			if seq%2 == 1 && !s.onePod {
				a.Backend = "web-2"
			}
			if s.longLost > 0 && at >= s.longLost && (s.longFor == 0 || at < s.longLost+s.longFor) {
				a.Class, a.Backend = cmp.Or(s.longClass, record.ReplyTimeout), ""
			}
			w.Attempt(a)
		}
		if s.flow != nil {
			a := s.attempt(3, uint64(seq), at, webAddress)
			a.Source = netip.MustParseAddrPort("10.200.0.9:2000")
			a.Class, a.Connect, a.Backend = record.OK, 0, s.flow(at)
			if a.Backend == "" {
				if a.Class = record.ReplyTimeout; s.flowClass != nil {
					a.Class = s.flowClass(at)
				}
			}
			w.Attempt(a)
		}
		if s.freshUntil > 0 {
			a := s.attempt(4, uint64(seq), at, webAddress)
			a.Class, a.Connect, a.Backend = record.OK, 0, "web-1"
			if at >= s.freshUntil {
				a.Class, a.Backend = record.ReplyTimeout, ""
			}
			w.Attempt(a)
		}
		if s.unserved > 0 {
			a := s.attempt(5, uint64(seq), at, webAddress)
			a.Class, a.Backend = record.OK, ""
			if at < s.unserved {
				a.Class, a.Connect = record.Refused, 0
			}
			w.Attempt(a)
		}
		if at < scenarioAt {
			w.Attempt(s.attempt(1, uint64(seq), at, canaryAddress))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *fakeRun) attempt(lane uint16, seq uint64, at time.Duration, target netip.AddrPort) record.Attempt {
	source := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(seq >> 8), byte(seq)}), 2000)
	a := record.Attempt{Lane: lane, Seq: seq, Intended: at, Start: at, Source: source, Class: record.OK,
		Connect: 300 * time.Microsecond, Total: time.Millisecond, Backend: "web-1"}
	node := s.node(source, target, at)
	for _, l := range s.losses {
		if l.node == node && l.from <= at && at < l.to {
			a.Class, a.Connect, a.Backend = l.class, 0, ""
		}
	}
	return a
}

// node returns the node that the load balancer chose.
func (s *fakeRun) node(source, target netip.AddrPort, at time.Duration) string {
	var nodes []string
	for _, e := range s.events {
		if b, is := e.Body.(record.Membership); is && e.At <= at && b.Address == target.Addr() {
			nodes = b.Nodes
		}
	}
	return nodes[record.PickNode(source, target, 1, len(nodes))]
}

package museum

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// fakeRun is a simulated run of the Service web behind the load balancer passthrough, with 50 attempts per second.
type fakeRun struct {
	scenario string
	params   map[string]string
	events   []record.Event
	losses   []loss
	noProof  bool
	end      time.Duration // 90 s when 0
	onePod   bool          // all open connections go to the pod web-1
	long     time.Duration // end of lane tcp-long; 0 without that lane
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

func (s *fakeRun) event(at time.Duration, kind record.Kind, node, object string, attrs ...string) {
	words := map[string]string{}
	for i := 0; i+1 < len(attrs); i += 2 {
		words[attrs[i]] = attrs[i+1]
	}
	body, err := record.ParseBody(kind, words)
	if err != nil {
		panic(err)
	}
	s.events = append(s.events, record.Event{At: at, Node: node, Object: object, Text: object, Body: body})
}

// pod adds the events of a pod's new state and of its endpoint.
func (s *fakeRun) pod(at time.Duration, pod, node, state string) {
	s.event(at, record.KindPod, node, pod, "pod", pod, "node", node, "state", state)
	if endpoint := map[string]string{"ready": "ready", "terminating": "serving-terminating", "removed": "removed"}[state]; endpoint != "" {
		s.event(at+10*time.Millisecond, record.KindEndpoint, node, pod, "service", "web", "pod", pod, "state", endpoint)
	}
}

// balance sets a Service's membership.
func (s *fakeRun) balance(at time.Duration, service string, address netip.AddrPort, nodes ...string) {
	s.event(at, record.KindMembership, "", "default/"+service, "service", "default/"+service, "address", address.Addr().String(),
		"port", strconv.Itoa(int(address.Port())), "protocol", "tcp", "nodes", strings.Join(nodes, ","), "all", strings.Join(nodes, ","),
		"policy", "sticky", "seed", "1", "fromNs", strconv.FormatInt(int64(at), 10))
}

func (s *fakeRun) lane(id int, name, service string, address netip.AddrPort, control bool) {
	s.event(time.Second, record.KindLane, "", name, "id", strconv.Itoa(id), "name", name, "service", service, "client", "client",
		"target", address.String(), "protocol", "tcp-new", "policy", "fresh", "rate", "50", "dialMs", "3000", "replyMs", "1000",
		"local", "true", "control", strconv.FormatBool(control))
}

// record writes the history, with the phases, steps, lanes and proof of a valid run, and opens it.
func (s *fakeRun) record(t *testing.T) *Record {
	t.Helper()
	s.end = cmp.Or(s.end, 90*time.Second)
	for name, at := range map[string]time.Duration{"setup": 0, "baseline": time.Second, "scenario": scenarioAt, "end": s.end} {
		s.event(at, record.KindPhase, "", name)
	}
	s.event(scenarioAt, record.KindStep, "", "the step", "state", "begin")
	s.event(s.end-time.Second, record.KindStep, "", "the step", "state", "end")
	s.lane(0, "tcp-new", "web", webAddress, false)
	s.lane(1, "canary", "canary", canaryAddress, true)
	if s.long > 0 {
		s.event(time.Second, record.KindLane, "", "tcp-long", "id", "2", "name", "tcp-long", "service", "web", "target", webAddress.String(),
			"protocol", "tcp-long", "policy", "fresh", "rate", "50", "dialMs", "3000", "replyMs", "1000", "partial", "true")
	}
	if s.flow != nil {
		s.event(time.Second, record.KindLane, "", "udp-sticky", "id", "3", "name", "udp-sticky", "service", "web", "target", webAddress.String(),
			"protocol", "udp-sticky", "policy", "fresh", "rate", "50", "dialMs", "3000", "replyMs", "1000")
	}
	s.balance(500*time.Millisecond, "canary", canaryAddress, "node-9")
	if !s.noProof {
		from, to := 3*time.Second, 3100*time.Millisecond
		s.losses = append(s.losses, loss{"node-9", from, to, record.Delayed})
		s.event(from, record.KindFault, "", "proof", "fault", "drop", "state", "begin", "id", "proof", "lane", "canary", "control", "true")
		s.event(to, record.KindFault, "", "proof", "fault", "drop", "state", "end", "id", "proof", "lane", "canary", "control", "true")
	}
	slices.SortStableFunc(s.events, func(x, y record.Event) int { return cmp.Compare(x.At, y.At) })
	return s.write(t)
}

func (s *fakeRun) write(t *testing.T) *Record {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "history")
	w, err := record.NewHistoryWriter(dir, record.Run{Scenario: s.scenario, Parameters: s.params, Seed: 1, Clock: "virtual"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.events {
		w.Event(e)
	}
	for seq := 0; ; seq++ {
		at := time.Second + 5*time.Millisecond + time.Duration(seq)*interval
		if at >= s.end {
			break
		}
		w.Attempt(s.attempt(0, uint64(seq), at, webAddress))
		if at < s.long {
			a := s.attempt(2, uint64(seq), at, webAddress)
			if seq%2 == 1 && !s.onePod {
				a.Backend = "web-2"
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
		if at < scenarioAt {
			w.Attempt(s.attempt(1, uint64(seq), at, canaryAddress))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenHistory(dir)
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

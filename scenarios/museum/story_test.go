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

// story is a made-up run whose truth is known: the Service web behind a passthrough balancer, probed 50 times a second.
type story struct {
	scenario string
	params   map[string]string
	events   []record.Event
	losses   []loss
	noProof  bool
	end      time.Duration // 90 s when 0
	onePod   bool          // all of these connections go to the pod web-1
	long     time.Duration // until when connections are open and asked on a lane of their own; 0 for none
	// flow is the pod that answers a flow of datagrams at a time, empty for none; nil without such a flow.
	flow func(at time.Duration) string
	// flowClass is how a datagram fails that nobody answers: as one that is lost when nil.
	flowClass func(at time.Duration) record.Class
}

// loss is a time in which every attempt over a node fails.
type loss struct {
	node     string
	from, to time.Duration
	class    record.Class
}

const (
	scenarioAt = 10 * time.Second
	probeGap   = 20 * time.Millisecond
)

var (
	webAddress    = netip.MustParseAddrPort("203.0.113.10:80")
	canaryAddress = netip.MustParseAddrPort("203.0.113.11:80")
)

func (s *story) event(at time.Duration, kind record.Kind, node, object string, attrs ...string) {
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

// pod tells a change in a pod's life, and in the endpoint that follows from it.
func (s *story) pod(at time.Duration, pod, node, state string) {
	s.event(at, record.KindPod, node, pod, "pod", pod, "node", node, "state", state)
	if endpoint := map[string]string{"ready": "ready", "terminating": "serving-terminating", "removed": "removed"}[state]; endpoint != "" {
		s.event(at+10*time.Millisecond, record.KindEndpoint, node, pod, "service", "web", "pod", pod, "state", endpoint)
	}
}

// balance changes the nodes that the balancer sends a Service's flows to.
func (s *story) balance(at time.Duration, service string, address netip.AddrPort, nodes ...string) {
	s.event(at, record.KindMembership, "", "default/"+service, "service", "default/"+service, "address", address.Addr().String(),
		"port", strconv.Itoa(int(address.Port())), "protocol", "tcp", "nodes", strings.Join(nodes, ","), "all", strings.Join(nodes, ","),
		"policy", "sticky", "seed", "1", "fromNs", strconv.FormatInt(int64(at), 10))
}

func (s *story) lane(id int, name, service string, address netip.AddrPort, control bool) {
	s.event(time.Second, record.KindLane, "", name, "id", strconv.Itoa(id), "name", name, "service", service, "client", "client",
		"target", address.String(), "protocol", "tcp-new", "policy", "fresh", "rate", "50", "dialMs", "3000", "replyMs", "1000",
		"local", "true", "control", strconv.FormatBool(control))
}

// record makes the history, with the frame that every trusted run has, and opens it.
func (s *story) record(t *testing.T) *Record {
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

func (s *story) write(t *testing.T) *Record {
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
		at := time.Second + 5*time.Millisecond + time.Duration(seq)*probeGap
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

func (s *story) attempt(lane uint16, seq uint64, at time.Duration, target netip.AddrPort) record.Attempt {
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

// node is the one that the balancer chose.
func (s *story) node(source, target netip.AddrPort, at time.Duration) string {
	var nodes []string
	for _, e := range s.events {
		if b, is := e.Body.(record.Membership); is && e.At <= at && b.Address == target.Addr() {
			nodes = b.Nodes
		}
	}
	return nodes[record.PickNode(source, target, 1, len(nodes))]
}

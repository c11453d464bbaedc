package probes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// Values of Lane.Protocol, Lane.Close and Lane.Policy.
const (
	ProtocolTCPNew    = record.ProtocolNew    // a new TCP connection per attempt: connect, one request, one answer, close
	ProtocolTCPDial   = record.ProtocolDial   // a new TCP connection per attempt, closed after the handshake: nothing is sent or read
	ProtocolTCPLong   = record.ProtocolLong   // TCP connections that stay open, used in turn: one request and one answer per attempt
	ProtocolHTTPReuse = record.ProtocolReuse  // an HTTP keep-alive connection: one request and one answer at a time, without retries
	ProtocolUDPFresh  = record.ProtocolFresh  // one datagram and one answer per attempt, each with its own five-tuple
	ProtocolUDPSticky = record.ProtocolSticky // one datagram and one answer per attempt, all with one five-tuple
	CloseFIN          = "fin"                 // the client closes first with a FIN; conntrack keeps the flow 120 s
	CloseRST          = "rst"                 // the client aborts after the answer (SO_LINGER 0); conntrack keeps the flow 10 s
	PolicyFresh       = "fresh"               // no five-tuple twice within FreshFor
	policyReuse       = "reuse:"              // followed by an interval: a fixed list of five-tuples, each used again after it
)

// knownProtocols are the values of Lane.Protocol; New makes one protocol for each.
var knownProtocols = []string{ProtocolTCPNew, ProtocolTCPLong, ProtocolHTTPReuse, ProtocolUDPFresh, ProtocolUDPSticky, ProtocolTCPDial}

// Default deadlines of lanes.
const (
	DefaultDialDeadline  = 3 * time.Second
	DefaultReplyDeadline = time.Second
)

// DefaultStallAfter is the default stall threshold of tcp-long lanes: the kernel's minimum retransmission timeout
// (TCP_RTO_MIN, include/net/tcp.h), so that an answer in time needed no retransmission.
const DefaultStallAfter = 200 * time.Millisecond

// Protocols lists the protocols of lanes.
func Protocols() []string { return slices.Clone(knownProtocols) }

const defaultPath = "/hostname" // of agnhost netexec and of the lab's backend

// Limits of a lane's fields. MaxRate is far above the rate that one engine reaches; it catches wrong units. At a rate below MinRate, which
// records refuse too, the time of the next attempt would be no number of nanoseconds.
const (
	MaxRate        = 100_000
	MinRate        = 1e-6
	maxReuse       = 1 << 20 // five-tuples of a reuse lane
	minInFlight    = 16
	maxConnections = 10_000 // connections of a tcp-long lane
)

// Lane is a sequence of attempts to one address with one protocol and one rate. In JSON, durations are Go duration
// strings ("3s", "250ms"), addresses are text, and omitted fields have the defaults below.
type Lane struct {
	ID       uint16         `json:"id"` // unique within a run
	Name     string         `json:"name"`
	Client   string         `json:"client,omitempty"` // name of the client, for the record
	Target   netip.AddrPort `json:"target"`
	Protocol string         `json:"protocol,omitempty"` // default ProtocolTCPNew
	// Policy is PolicyFresh (default) or reuse:INTERVAL, such as reuse:5s: a fixed list of five-tuples, each used again
	// after at least the interval. With fin close that needs TCP timestamps (net.ipv4.tcp_timestamps, on by default):
	// without them the client's kernel refuses a bound five-tuple in TIME_WAIT (tcp_twsk_unique()).
	Policy string  `json:"policy,omitempty"`
	Close  string  `json:"close,omitempty"` // CloseFIN (default) or CloseRST
	Rate   float64 `json:"rate"`            // attempts per second, MinRate to MaxRate

	// SourcePrefix is the range of source addresses. Every address in it must be local to the client's namespace (`ip
	// route add local PREFIX dev lo`; for IPv6 with net.ipv6.ip_nonlocal_bind=1, or assign each, see inet6_bind()). Without it
	// the kernel chooses the address, and ports are shared with other programs of the network namespace: some 28,000
	// ports, enough for 217 attempts a second in all lanes, and fresh only as far as this process knows.
	SourcePrefix netip.Prefix `json:"sourcePrefix,omitzero"`
	// SpreadSeed is the seed of a load balancer that chooses nodes by record.FlowHash; 0 means none. A fresh lane
	// then chooses its sources so that attempts go to all nodes in turn: with three nodes each gets an attempt every
	// three intervals. Random sources leave one node without an attempt for 20 intervals every few minutes, and an
	// outage there has bounds that wide.
	SpreadSeed uint32 `json:"spreadSeed,omitempty"`
	// SpreadNodes is the number of nodes of that load balancer, 1 to 1000; only with SpreadSeed.
	SpreadNodes int `json:"spreadNodes,omitempty"`

	DialDeadline  time.Duration `json:"-"` // from the start to an established connection; default 3 s
	ReplyDeadline time.Duration `json:"-"` // from there to the complete answer; default 1 s
	// DelayedAfter is the time from the start after which a correct answer is `delayed`; 0 means off. Set it behind
	// load balancers that terminate connections, where the client's socket never retransmits. Elsewhere TCP_INFO is
	// exact, and a threshold is not. For UDP the default is half of the reply deadline: a later answer is delayed, and
	// one after the deadline or none is a reply-timeout.
	DelayedAfter time.Duration `json:"-"`

	// Connections is the number of connections that a tcp-long lane keeps open; attempt k uses connection k mod
	// Connections. Default 1 for tcp-long; other lanes have none.
	Connections int `json:"connections,omitempty"`
	// StallAfter is the time from the start, or from the end of the handshake, after which a correct answer on a
	// tcp-long connection is `stalled`; default 200 ms.
	StallAfter time.Duration `json:"-"`

	// Lasts is how long the lane runs at most; 0 for unknown. Preflight counts no five-tuples beyond it. It ends no lane.
	Lasts time.Duration `json:"-"`

	Backends []string `json:"backends,omitempty"` // allowed prefixes of the answering pod's name; empty allows any
	Host     string   `json:"host,omitempty"`     // Host header; default is the target
	Path     string   `json:"path,omitempty"`     // of the HTTP request; default /hostname
	// Status is the status of correct answers of a target that is not a known backend: every complete head with this
	// status is correct, the body is ignored, and only the X-Hitless headers identify the backend. With 0 (default)
	// only the strict answer of known backends is correct: status 200, a short body, and no further bytes.
	Status  int  `json:"status,omitempty"`
	Control bool `json:"control,omitempty"` // a control lane: never counts as the subject's loss
	// Role and Beside give the purpose of a control lane, see record.Lane; empty for a lane that proves the detector.
	Role   string `json:"role,omitempty"`
	Beside string `json:"beside,omitempty"`
	// Fresh is the id of the lane on which a new connection is tried when an established one of this lane fails or
	// stalls, see freshLane; 0 means none. It is larger than ID. Only lanes with KeepsConnections have one.
	Fresh uint16 `json:"fresh,omitempty"`
	// InFlight limits the attempts in flight; further attempts are recorded with class probe. The default, 4 x rate x
	// (both deadlines), is only reached when the engine itself fails.
	InFlight int `json:"inFlight,omitempty"`
}

// WithDefaults returns the lane with defaults in all omitted fields.
func (l Lane) WithDefaults() Lane {
	word := func(s *string, fallback string) {
		if *s == "" {
			*s = fallback
		}
	}
	l.Target = netip.AddrPortFrom(l.Target.Addr().Unmap(), l.Target.Port())
	word(&l.Protocol, ProtocolTCPNew)
	word(&l.Policy, PolicyFresh)
	word(&l.Close, CloseFIN)
	word(&l.Host, l.Target.String())
	word(&l.Path, defaultPath)
	if l.DialDeadline == 0 {
		l.DialDeadline = DefaultDialDeadline
	}
	if l.ReplyDeadline == 0 {
		l.ReplyDeadline = DefaultReplyDeadline
	}
	if l.Protocol == ProtocolTCPLong {
		l.Connections = cmp.Or(l.Connections, 1)
		l.StallAfter = cmp.Or(l.StallAfter, min(DefaultStallAfter, l.ReplyDeadline))
	}
	if l.overUDP() && l.DelayedAfter == 0 {
		l.DelayedAfter = l.ReplyDeadline / 2
	}
	if l.InFlight == 0 {
		l.InFlight = max(minInFlight, int(math.Ceil(4*l.Rate*(l.DialDeadline+l.ReplyDeadline).Seconds())))
	}
	return l
}

// Validate returns an error that describes the first invalid field of the lane, with defaults applied.
func (l Lane) Validate() error {
	l = l.WithDefaults()
	fail := func(format string, args ...any) error {
		return fmt.Errorf("lane %d (%s): %s", l.ID, l.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case l.Name == "":
		return fail("has no name")
	case !l.Target.IsValid() || l.Target.Port() == 0 || l.Target.Addr().IsUnspecified():
		return fail("target %s is not an address with a port", l.Target)
	case l.Target.Addr().Zone() != "":
		return fail("target %s has the IPv6 zone %q, and link-local addresses cannot be measured; give an address that needs no zone", l.Target, l.Target.Addr().Zone())
	case !slices.Contains(knownProtocols, l.Protocol):
		return fail("protocol %q is unknown; known are %s", l.Protocol, strings.Join(knownProtocols, ", "))
	case l.Close != CloseFIN && l.Close != CloseRST:
		return fail("close %q is unknown; known are %s and %s", l.Close, CloseFIN, CloseRST)
	case !(l.Rate >= MinRate && l.Rate <= MaxRate): // the negation also catches NaN
		return fail("rate %v attempts per second is not between %v and %d", l.Rate, MinRate, MaxRate)
	case l.DialDeadline < 0 || l.ReplyDeadline < 0 || l.DelayedAfter < 0 || l.InFlight < 0:
		return fail("a deadline, a threshold or the in-flight cap is negative")
	case l.SourcePrefix.IsValid() && l.SourcePrefix.Addr().Is4() != l.Target.Addr().Is4():
		return fail("source prefix %s and target %s have different address families", l.SourcePrefix, l.Target)
	case l.SpreadSeed != 0 && !(l.Policy == PolicyFresh && l.SourcePrefix.IsValid()):
		return fail("an even spread needs fresh five-tuples from a source prefix")
	case l.SpreadSeed != 0 && (l.SpreadNodes < 1 || l.SpreadNodes > 1000):
		return fail("an even spread needs the number of nodes, 1 to 1000, not %d", l.SpreadNodes)
	case strings.ContainsFunc(l.Host+l.Path, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fail("host %q or path %q has characters that a request's head cannot have", l.Host, l.Path)
	case l.Path[0] != '/':
		return fail("path %q does not start with /", l.Path)
	case l.Status != 0 && (l.Protocol == ProtocolTCPLong || l.Protocol == ProtocolHTTPReuse):
		return fail("a %s lane reads whole answers and needs the short answers of known backends, not a status", l.Protocol)
	case l.Fresh != 0 && (l.Fresh <= l.ID || !l.KeepsConnections()):
		return fail("the id of its fresh lane is %d; only lanes that keep connections have one, with a larger id", l.Fresh)
	case l.Protocol == ProtocolTCPDial && (l.Status != 0 || len(l.Backends) > 0):
		return fail("a %s lane reads no answer, so that it can expect none", l.Protocol)
	case l.Status != 0 && (l.Status < 100 || l.Status > 599):
		return fail("status %d is not an HTTP status; give 100 to 599, or 0 for the answer of a known backend", l.Status)
	}
	if err := l.validateLong(); err != nil {
		return fail("%v", err)
	}
	for _, prefix := range l.Backends {
		if prefix == "" {
			return fail("an empty backend prefix would allow every backend; leave the list empty for that")
		}
	}
	if _, err := l.reuseInterval(); err != nil {
		return fail("%v", err)
	}
	if l.Policy != PolicyFresh && (l.Protocol == ProtocolUDPSticky || l.Protocol == ProtocolHTTPReuse) {
		return fail("policy %q: a %s lane keeps its five-tuple and needs policy fresh", l.Policy, l.Protocol)
	}
	return nil
}

// validateLong validates the fields of tcp-long lanes.
func (l Lane) validateLong() error {
	switch {
	case l.Protocol != ProtocolTCPLong && (l.Connections != 0 || l.StallAfter != 0):
		return fmt.Errorf("only %s lanes have a number of connections and a stall threshold", ProtocolTCPLong)
	case l.Protocol != ProtocolTCPLong:
		return nil
	case l.Connections < 1 || l.Connections > maxConnections:
		return fmt.Errorf("%d connections: give 1 to %d", l.Connections, maxConnections)
	case l.StallAfter < 0 || l.StallAfter > l.ReplyDeadline:
		return fmt.Errorf("the stall threshold %s is not between 0 and the reply deadline %s", l.StallAfter, l.ReplyDeadline)
	case l.Policy != PolicyFresh:
		return fmt.Errorf("policy %q: a %s lane needs policy fresh", l.Policy, ProtocolTCPLong)
	}
	return nil
}

// overUDP reports whether the lane uses UDP.
func (l Lane) overUDP() bool { return record.Datagrams(l.Protocol) }

// opensSockets reports whether each attempt of the lane has a socket of its own.
func (l Lane) opensSockets() bool {
	return l.Protocol == ProtocolTCPNew || l.Protocol == ProtocolTCPDial || l.Protocol == ProtocolUDPFresh
}

// KeepsConnections reports whether connections of the lane outlive attempts.
func (l Lane) KeepsConnections() bool {
	return l.Protocol == ProtocolTCPLong || l.Protocol == ProtocolHTTPReuse
}

// reuseInterval returns the interval of a reuse policy; 0 for policy fresh.
func (l Lane) reuseInterval() (time.Duration, error) {
	if l.Policy == PolicyFresh {
		return 0, nil
	}
	text, found := strings.CutPrefix(l.Policy, policyReuse)
	if !found {
		return 0, fmt.Errorf("policy %q is unknown; known are %s and %sINTERVAL", l.Policy, PolicyFresh, policyReuse)
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval <= 0 {
		return 0, fmt.Errorf("policy %q has no positive interval; write it as in %s5s", l.Policy, policyReuse)
	}
	if interval <= l.DialDeadline+l.ReplyDeadline {
		return 0, fmt.Errorf("policy %q reuses a five-tuple while its last attempt may be in flight (deadlines %s + %s): "+
			"a target without answers would look like a fault of the probe; use a longer interval or shorter deadlines",
			l.Policy, l.DialDeadline, l.ReplyDeadline)
	}
	if n := interval.Seconds() * l.Rate; n > maxReuse {
		return 0, fmt.Errorf("policy %q at %v/s needs %.0f five-tuples, more than %d", l.Policy, l.Rate, n, maxReuse)
	}
	return interval, nil
}

// Interval returns the time between two scheduled attempts of the lane.
func (l Lane) Interval() time.Duration { return schedule{rate: l.Rate}.at(1) }

// Event returns the event that declares the lane in the record.
func (l Lane) Event(at time.Duration) record.Event {
	l = l.WithDefaults()
	body := record.Lane{ID: l.ID, Name: l.Name, Client: l.Client, Target: l.Target.String(), Protocol: l.Protocol, Policy: l.Policy,
		Close: l.Close, Rate: l.Rate, Dial: l.DialDeadline, Reply: l.ReplyDeadline, Control: l.Control, Role: l.Role, Beside: l.Beside}
	if l.Protocol == ProtocolTCPLong {
		body.Connections, body.Stall = l.Connections, l.StallAfter
	}
	text := fmt.Sprintf("lane %s: %s to %s, %v/s, %s five-tuples, %s close", l.Name, l.Protocol, l.Target, l.Rate, l.Policy, l.Close)
	return record.Event{At: at, Object: l.Name, Text: text, Body: body}
}

// laneFields has Lane's fields without its methods, which prevents recursion of the JSON methods.
type laneFields Lane

// laneText is the JSON form of a lane, with durations as text.
type laneText struct {
	laneFields
	Dial    string `json:"dialDeadline,omitempty"`
	Reply   string `json:"replyDeadline,omitempty"`
	Delayed string `json:"delayedAfter,omitempty"`
	Stall   string `json:"stallAfter,omitempty"`
}

// MarshalJSON encodes the lane with durations as Go duration strings.
func (l Lane) MarshalJSON() ([]byte, error) {
	text := laneText{laneFields: laneFields(l)}
	for field, d := range text.durations(&l) {
		if *d != 0 {
			*field = d.String()
		}
	}
	return json.Marshal(text)
}

// UnmarshalJSON decodes the result of MarshalJSON. An unknown field is an error, since a mistyped name would silently
// become a default.
func (l *Lane) UnmarshalJSON(data []byte) error {
	var text laneText
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&text); err != nil {
		return fmt.Errorf("reading a lane: %w", err)
	}
	lane := Lane(text.laneFields)
	for field, d := range text.durations(&lane) {
		if *field == "" {
			continue
		}
		var err error
		if *d, err = time.ParseDuration(*field); err != nil {
			return fmt.Errorf("reading a duration of lane %d: %w", lane.ID, err)
		}
	}
	*l = lane
	return nil
}

// durations yields each duration of the lane with its text.
func (t *laneText) durations(l *Lane) func(yield func(*string, *time.Duration) bool) {
	return func(yield func(*string, *time.Duration) bool) {
		_ = yield(&t.Dial, &l.DialDeadline) && yield(&t.Reply, &l.ReplyDeadline) && yield(&t.Delayed, &l.DelayedAfter) &&
			yield(&t.Stall, &l.StallAfter)
	}
}

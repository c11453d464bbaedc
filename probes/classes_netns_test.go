//go:build netns

package probes

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/hitless/hitless/record"
)

func wiredLane(rate float64) Lane {
	return Lane{ID: 1, Name: "vip", Target: netip.MustParseAddrPort(vip), Rate: rate, Backends: []string{"web-"},
		SourcePrefix: netip.MustParsePrefix("10.200.0.0/16"), DialDeadline: 5 * time.Second, ReplyDeadline: 5 * time.Second}
}

// shortDeadlines is for lanes whose attempts reach their deadlines.
func shortDeadlines(l *Lane) {
	l.DialDeadline, l.ReplyDeadline = 400*time.Millisecond, 400*time.Millisecond
}

// probe makes attempts from the client's namespace, at least so many.
func (w *network) probe(t *testing.T, base int64, from time.Duration, l Lane, n int) []record.Attempt {
	t.Helper()
	var got []record.Attempt
	w.client.must(t, func() (err error) { got, err = probeFrom(base, from, l, n); return err })
	own := numbered(t, got)[l.ID]
	if len(own) < n {
		t.Fatalf("%d attempts of %d", len(own), n)
	}
	return own
}

// afterConnect are the classes of connections that were established.
var afterConnect = []record.Class{record.OK, record.Delayed, record.Reset, record.Closed, record.ReplyTimeout, record.Misrouted, record.WrongAnswer}

// The classes of failures that a real kernel produces.
func TestOutcomes(t *testing.T) {
	web := func(l net.Listener) { serve(l, answer("web-1", "node-1")) }
	do := func(then func(c *net.TCPConn)) func(net.Listener) { return func(l net.Listener) { serveOnce(l, then) } }
	chain := func(rule string) string {
		return translate + "chain forward { type filter hook forward priority filter; " + rule + "; }"
	}
	before := func(verdict string) string { // the Service's address is not translated, as without endpoints
		return "chain forward { type filter hook forward priority filter; ip daddr 203.0.113.10 " + verdict + "; }"
	}
	router := netip.MustParseAddr(routerSide)
	for _, test := range []struct {
		name     string
		server   func(net.Listener)
		rules    string // of the router; empty is only the translation
		change   func(*Lane)
		class    record.Class
		detail   string
		offender netip.Addr
	}{
		{name: "ok", server: web, class: record.OK},
		{name: "ok with rst close", server: web, change: func(l *Lane) { l.Close = CloseRST }, class: record.OK},
		{name: "refused: no listener", class: record.Refused},
		{name: "refused: reject with tcp reset", server: web, rules: chain("tcp dport 8080 reject with tcp reset"), class: record.Refused},
		{name: "rejected: no endpoints", server: web, rules: before("reject"), class: record.Rejected, detail: "icmp 3/3", offender: router},
		// Connection tracking rewrites the sender of an ICMP error about a translated connection to the Service's address.
		{name: "rejected: behind the translation", server: web, rules: chain("tcp dport 8080 reject"),
			class: record.Rejected, detail: "icmp 3/3", offender: netip.MustParseAddrPort(vip).Addr()},
		{name: "unreachable: host", server: web, rules: before("reject with icmp host-unreachable"),
			class: record.Unreachable, detail: "icmp 3/1", offender: router},
		{name: "unreachable: network", server: web, rules: before("reject with icmp net-unreachable"),
			class: record.Unreachable, detail: "icmp 3/0", offender: router},
		{name: "rejected: prohibited", server: web, rules: before("reject with icmp admin-prohibited"),
			class: record.Rejected, detail: "icmp 3/13", offender: router},
		{name: "unreachable: the router has no route", server: web, change: func(l *Lane) { l.Target = netip.MustParseAddrPort("192.0.2.1:80") },
			class: record.Unreachable, detail: "icmp 3/0", offender: router},
		{name: "connect-timeout", server: web, rules: chain("tcp dport 8080 drop"), change: shortDeadlines, class: record.ConnectTimeout},
		{name: "reset: by the backend", server: do(func(c *net.TCPConn) { _ = c.SetLinger(0) }), class: record.Reset, detail: "ECONNRESET"},
		{name: "reset: by a rule", server: web, rules: chain("tcp dport 8080 tcp flags & psh != 0 reject with tcp reset"),
			class: record.Reset, detail: "ECONNRESET"},
		{name: "closed", server: do(func(*net.TCPConn) {}), class: record.Closed, detail: DetailEnd},
		{name: "reply-timeout: the backend is silent", server: do(func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }),
			change: shortDeadlines, class: record.ReplyTimeout},
		{name: "reply-timeout: data are dropped", server: web, rules: chain("tcp flags & psh != 0 drop"), change: shortDeadlines, class: record.ReplyTimeout},
		{name: "reply-timeout: icmp does not end an established connection", server: web,
			rules: chain("tcp dport 8080 tcp flags & psh != 0 reject"), change: shortDeadlines, class: record.ReplyTimeout},
		{name: "misrouted: another Service's pod", server: func(l net.Listener) { serve(l, answer("db-1", "node-1")) },
			class: record.Misrouted, detail: DetailBackend},
		{name: "probe: no address", server: web, change: func(l *Lane) { l.SourcePrefix = netip.MustParsePrefix("10.201.0.0/16") },
			class: record.Probe, detail: "EADDRNOTAVAIL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			if test.server != nil {
				w.serve(t, test.server)
			}
			if test.rules != "" {
				w.router.nft(t, test.rules)
			}
			l := wiredLane(50)
			if test.change != nil {
				test.change(&l)
			}
			attempts := w.probe(t, monotonic(t), 10*time.Millisecond, l, 10)
			if len(attempts) != 10 {
				t.Errorf("%d attempts, want 10", len(attempts))
			}
			for _, a := range attempts {
				if a.Class != test.class || a.Detail != test.detail || a.Offender != test.offender {
					t.Errorf("attempt %d is %v (%s) by %v, want %v (%s) by %v", a.Seq, a.Class, a.Detail, a.Offender,
						test.class, test.detail, test.offender)
				}
				if a.Class != record.Probe && !l.SourcePrefix.Contains(a.Source.Addr()) {
					t.Errorf("attempt %d has no source to compute its path from: %s", a.Seq, a.Source)
				}
				if established := slices.Contains(afterConnect, a.Class); established != (a.Connect > 0) {
					t.Errorf("attempt %d is %v with a connect time of %v", a.Seq, a.Class, a.Connect)
				}
			}
		})
	}
}

func TestNoRouteHasClassProbe(t *testing.T) {
	alone := newTestNamespace(t, "alone")
	l := wiredLane(50)
	l.SourcePrefix = netip.Prefix{}
	var got []record.Attempt
	alone.must(t, func() (err error) { got, err = probeFrom(monotonic(t), 0, l, 3); return err })
	for _, a := range got {
		if a.Class != record.Probe || a.Detail != "ENETUNREACH" {
			t.Errorf("attempt %d is %v (%s), want probe (ENETUNREACH)", a.Seq, a.Class, a.Detail)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d attempts, want 3", len(got))
	}
}

// Without answers the number of attempts in flight grows to its limit; further attempts have class probe.
func TestInFlightCap(t *testing.T) {
	w := newNetwork(t)
	w.router.nft(t, "chain raw { type filter hook prerouting priority raw; policy drop; }")
	l := wiredLane(200)
	l.DialDeadline = 3 * time.Second // the first one must not end before the last one starts, on a busy machine too
	l.InFlight = 5
	classes := map[record.Class]int{}
	for _, a := range w.probe(t, monotonic(t), 10*time.Millisecond, l, 20) {
		classes[a.Class]++
	}
	if classes[record.ConnectTimeout] != 5 || classes[record.Probe] != 15 {
		t.Errorf("%v, want 5 connect-timeout and 15 probe", classes)
	}
}

// Each five-tuple of a reuse lane is used again after the interval, and its age is recorded. In TIME_WAIT, after a close with FIN, that
// needs TCP timestamps; without them the client's kernel refuses, and the class is probe.
func TestReuse(t *testing.T) {
	for _, test := range []struct{ name, timestamps, close, prefix, again string }{
		{"fin", "1", CloseFIN, "10.200.0.0/16", ""},
		{"fin without timestamps", "0", CloseFIN, "10.200.0.0/16", "EADDRNOTAVAIL"},
		{"rst", "0", CloseRST, "10.200.0.0/16", ""},
		{"the kernel's address", "1", CloseRST, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			w.client.sysctl(t, "net.ipv4.tcp_timestamps", test.timestamps)
			w.serve(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
			l := wiredLane(20)
			shortDeadlines(&l)
			l.Policy, l.Close, l.SourcePrefix = "reuse:1s", test.close, netip.Prefix{}
			if test.prefix != "" {
				l.SourcePrefix = netip.MustParsePrefix(test.prefix)
			}
			attempts := w.probe(t, monotonic(t), 10*time.Millisecond, l, 30)
			for k, a := range attempts {
				class, detail, age := record.OK, "", time.Duration(0)
				if k >= 20 {
					age = a.Start - attempts[k-20].Start
					if detail = test.again; detail != "" {
						class = record.Probe
					}
				}
				if a.Class != class || a.Detail != detail || a.Source.Port() != attempts[k%20].Source.Port() || a.TupleAge != age {
					t.Errorf("attempt %d from %s (age %v) is %v (%s), want %v (%s) and age %v",
						a.Seq, a.Source, a.TupleAge, a.Class, a.Detail, class, detail, age)
				}
			}
		})
	}
}

func TestSourcesComeFromThePrefix(t *testing.T) {
	w := newNetwork(t)
	w.serve(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
	l := wiredLane(1000)
	seen := map[netip.AddrPort]bool{}
	for _, a := range w.probe(t, monotonic(t), 10*time.Millisecond, l, 200) {
		if a.Class != record.OK || !l.SourcePrefix.Contains(a.Source.Addr()) || seen[a.Source] || a.TupleAge != 0 {
			t.Errorf("attempt %d from %s (age %v) is %v (%s)", a.Seq, a.Source, a.TupleAge, a.Class, a.Detail)
		}
		seen[a.Source] = true
	}
}

func TestIPv6(t *testing.T) {
	alone := newTestNamespace(t, "alone")
	var got []record.Attempt
	alone.must(t, func() error {
		listener, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		go serve(listener, answer("web-1", "node-1"))
		l := wiredLane(100)
		l.Target, l.SourcePrefix = netip.MustParseAddrPort(listener.Addr().String()), netip.MustParsePrefix("::1/128")
		got, err = probeFrom(monotonic(t), 0, l, 5)
		return err
	})
	for _, a := range got {
		if a.Class != record.OK || a.Source.Addr() != netip.IPv6Loopback() {
			t.Errorf("attempt %d from %s is %v (%s)", a.Seq, a.Source, a.Class, a.Detail)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d attempts, want 5", len(got))
	}
}

// blackout makes the router drop all packets for a time, before connection tracking. It returns the times of the run between which it
// began and between which it ended.
func (w *network) blackout(base int64, from, length time.Duration) (began, ended [2]time.Duration, err error) {
	drop := nftables.ChainPolicyDrop
	return w.withRules(base, from, length, func(n *nftables.Conn, table *nftables.Table) {
		n.AddChain(&nftables.Chain{Name: "all", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw, Policy: &drop})
	})
}

// A drop of 200 ms at 200/s makes exactly the attempts of these 200 ms delayed or dropped: none before, none after.
func TestBlackoutHitsExactlyItsWindow(t *testing.T) {
	for name, test := range map[string]struct {
		protocol string
		deadline time.Duration
		class    record.Class
		retrans  uint8
	}{
		"delayed":               {ProtocolTCPNew, 3 * time.Second, record.Delayed, 1},
		"connect-timeout":       {ProtocolTCPNew, 500 * time.Millisecond, record.ConnectTimeout, 0},
		"lost, fresh sources":   {ProtocolUDPFresh, 500 * time.Millisecond, record.ReplyTimeout, 0},
		"lost, from one source": {ProtocolUDPSticky, 500 * time.Millisecond, record.ReplyTimeout, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t)
			w.serve(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
			base := monotonic(t)
			l := wiredLane(200)
			l.Protocol, l.DialDeadline = test.protocol, test.deadline
			if l.overUDP() {
				l.ReplyDeadline = test.deadline
				w.serveDatagrams(t, "10.0.0.11:8080", answerAs("web-1"))
			}
			var began, ended [2]time.Duration
			faulted := make(chan error, 1)
			go func() {
				var err error
				began, ended, err = w.blackout(base, 300*time.Millisecond, 200*time.Millisecond)
				faulted <- err
			}()
			attempts := w.probe(t, base, 100*time.Millisecond, l, 200)
			if err := <-faulted; err != nil {
				t.Fatal(err)
			}
			intended, hit := 0, 0
			for _, a := range attempts {
				if a.Intended >= began[1] && a.Intended < ended[0] {
					intended++
				}
				inside := a.Intended >= began[1] && a.Start < ended[0]
				outside := a.Start+a.Total < began[0] || a.Intended >= ended[1]
				want := test.class
				if outside {
					want = record.OK
				}
				if (inside || outside) && a.Class != want {
					t.Errorf("attempt %d, intended at %v and started at %v, is %v (%s), want %v; the drop lasted from %v to %v",
						a.Seq, a.Intended, a.Start, a.Class, a.Detail, want, began, ended)
				}
				if inside {
					hit++
					if a.Retrans != test.retrans || (a.Class == record.Delayed && a.Connect < 900*time.Millisecond) {
						t.Errorf("attempt %d: %d retransmissions, connected after %v", a.Seq, a.Retrans, a.Connect)
					}
				}
			}
			if least := int((ended[0] - began[1]) / l.Interval()); intended < least || least < 40 || hit == 0 {
				t.Errorf("%d attempts intended and %d made within the drop from %v to %v, want at least %d", intended, hit, began, ended, least)
			}
		})
	}
}

// A SYN that meets an earlier connection in TIME_WAIT with the same five-tuple is retransmitted at once, and the attempt is ok. The server
// does not accept the SYN without timestamps when the earlier connection had more data than its sequence clock advances (RFC 6191). A
// proxy that maps another client to the same five-tuple has the same effect.
func TestServerInTimeWaitIsNotALoss(t *testing.T) {
	const much = 64 << 20 // bytes; the sequence clock advances by one each 64 ns, so it takes 4.3 s for them
	w := newNetwork(t)
	w.client.sysctl(t, "net.ipv4.tcp_timestamps", "0")
	w.serve(t, func(l net.Listener) {
		if c, err := l.Accept(); err == nil {
			_, _ = io.CopyN(io.Discard, c, much)
			_ = c.Close() // before the client, so that the server has the connection in TIME_WAIT
		}
		serve(l, answer("web-1", "node-1"))
	})
	l, base := wiredLane(50), monotonic(t)
	w.client.must(t, func() error { return upload(newWalk(l.SourcePrefix, base).next(0), vip, much) })
	for _, a := range w.probe(t, base, 10*time.Millisecond, l, 3) {
		remembered := a.Seq == 0
		if a.Class != record.OK || (a.Detail == DetailRemembered) != remembered || (a.Retrans > 0) != remembered || a.Connect >= synLost {
			t.Errorf("attempt %d is %v (%s), %d retransmissions, connected after %v", a.Seq, a.Class, a.Detail, a.Retrans, a.Connect)
		}
	}
}

// upload sends that many bytes from the address, and waits until the server has closed the connection.
func upload(from netip.AddrPort, to string, bytes int) error {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

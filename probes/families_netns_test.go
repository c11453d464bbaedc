//go:build netns

package probes

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/hitless/hitless/record"
)

// wired6 returns a lane to the IPv6 address.
func wired6(protocol string) Lane {
	l := wiredLane(50)
	l.Protocol, l.Target, l.SourcePrefix = protocol, netip.MustParseAddrPort(vip6), netip.Prefix{}
	return l
}

// outcomes checks that all attempts have the same outcome.
func outcomes(t *testing.T, attempts []record.Attempt, class record.Class, detail string, offender netip.Addr) {
	t.Helper()
	if len(attempts) != 10 {
		t.Errorf("%d attempts, want 10", len(attempts))
	}
	for _, a := range attempts {
		if a.Class != class || a.Detail != detail || a.Offender != offender {
			t.Errorf("attempt %d is %v (%s) by %v, want %v (%s) by %v", a.Seq, a.Class, a.Detail, a.Offender, class, detail, offender)
		}
		if a.Source.Port() == 0 {
			t.Errorf("attempt %d has no source to compute its path from", a.Seq)
		}
	}
}

// The outcomes of TCP over IPv6; its ICMP errors have other types and codes (RFC 4443).
func TestOutcomesOverIPv6(t *testing.T) {
	before := func(verdict string) string {
		return "chain forward { type filter hook forward priority filter; ip6 daddr 2001:db8:113::10 " + verdict + "; }"
	}
	chain := func(rule string) string {
		return translate6 + "chain forward { type filter hook forward priority filter; " + rule + "; }"
	}
	web := func(l net.Listener) { serve(l, answer("web-1", "node-1")) }
	router := netip.MustParseAddr(routerSide6)
	for _, test := range []struct {
		name     string
		server   func(net.Listener)
		rules    string
		change   func(*Lane)
		class    record.Class
		detail   string
		offender netip.Addr
	}{
		{name: "ok", server: web, class: record.OK},
		{name: "refused", class: record.Refused},
		{name: "rejected: no endpoints", server: web, rules: before("reject"), class: record.Rejected, detail: "icmp6 1/4", offender: router},
		{name: "rejected: behind the translation", server: web, rules: chain("tcp dport 8080 reject"),
			class: record.Rejected, detail: "icmp6 1/4", offender: netip.MustParseAddrPort(vip6).Addr()},
		{name: "unreachable: no route", server: web, rules: before("reject with icmpv6 no-route"),
			class: record.Unreachable, detail: "icmp6 1/0", offender: router},
		{name: "rejected: prohibited", server: web, rules: before("reject with icmpv6 admin-prohibited"),
			class: record.Rejected, detail: "icmp6 1/1", offender: router},
		{name: "unreachable: address", server: web, rules: before("reject with icmpv6 addr-unreachable"),
			class: record.Unreachable, detail: "icmp6 1/3", offender: router},
		{name: "connect-timeout", server: web, rules: chain("tcp dport 8080 drop"), change: shortDeadlines, class: record.ConnectTimeout},
		{name: "reset", server: func(l net.Listener) { serveOnce(l, func(c *net.TCPConn) { _ = c.SetLinger(0) }) },
			class: record.Reset, detail: "ECONNRESET"},
		{name: "misrouted", server: func(l net.Listener) { serve(l, answer("db-1", "node-1")) }, class: record.Misrouted, detail: DetailBackend},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			w.addIPv6(t)
			if test.server != nil {
				w.serveOn(t, "["+backend6+"]:8080", test.server)
			}
			if test.rules != "" {
				w.router.nft6(t, test.rules)
			}
			l := wired6(ProtocolTCPNew)
			if test.change != nil {
				test.change(&l)
			}
			outcomes(t, w.probe(t, monotonic(t), 10e6, l, 10), test.class, test.detail, test.offender)
		})
	}
}

// The outcomes of UDP, over both families and with both kinds of five-tuples.
func TestOutcomesOfDatagrams(t *testing.T) {
	for _, family := range []struct {
		name, vip, listen, translate, daddr, port, host string
		router                                          string
		lane                                            func(protocol string) Lane
		nft                                             func(*testNamespace, testing.TB, string)
	}{
		{"ip", vip, "10.0.0.11:8080", translate, "ip daddr 203.0.113.10", "icmp 3/3", "icmp 3/1", routerSide,
			func(protocol string) Lane { l := wiredLane(50); l.Protocol = protocol; return l }, (*testNamespace).nft},
		{"ip6", vip6, "[" + backend6 + "]:8080", translate6, "ip6 daddr 2001:db8:113::10", "icmp6 1/4", "icmp6 1/3", routerSide6, wired6, (*testNamespace).nft6},
	} {
		router, service := netip.MustParseAddr(family.router), netip.MustParseAddrPort(family.vip).Addr()
		forward := "chain forward { type filter hook forward priority filter; "
		unreachable := map[string]string{"ip": "reject with icmp host-unreachable", "ip6": "reject with icmpv6 addr-unreachable"}[family.name]
		for _, test := range []struct {
			name     string
			server   func(string, func(string))
			rules    string
			class    record.Class
			detail   string
			offender netip.Addr
		}{
			{name: "ok", server: answerAs("web-1"), class: record.OK},
			{name: "rejected: no endpoints", rules: forward + family.daddr + " reject; }", class: record.Rejected, detail: family.port, offender: router},
			{name: "rejected: no listener", class: record.Rejected, detail: family.port, offender: service},
			{name: "unreachable", rules: forward + family.daddr + " " + unreachable + "; }", class: record.Unreachable, detail: family.host, offender: router},
			{name: "reply-timeout: dropped", server: answerAs("web-1"), rules: family.translate + forward + "udp dport 8080 drop; }", class: record.ReplyTimeout},
			{name: "reply-timeout: the answer is dropped", server: answerAs("web-1"), rules: family.translate + forward + "udp sport 8080 drop; }",
				class: record.ReplyTimeout},
			{name: "misrouted", server: answerAs("db-1"), class: record.Misrouted, detail: DetailBackend},
		} {
			for _, protocol := range []string{ProtocolUDPFresh, ProtocolUDPSticky} {
				t.Run(family.name+"/"+test.name+"/"+protocol, func(t *testing.T) {
					t.Parallel()
					w := newNetwork(t)
					w.addIPv6(t)
					w.backend.sysctl(t, "net.ipv4.icmp_ratelimit", "0")
					if test.server != nil {
						w.serveDatagrams(t, family.listen, test.server)
					}
					if test.rules != "" {
						family.nft(w.router, t, test.rules)
					}
					l := family.lane(protocol)
					shortDeadlines(&l)
					outcomes(t, w.probe(t, monotonic(t), 10e6, l, 10), test.class, test.detail, test.offender)
				})
			}
		}
	}
}

// A rule resets an established HTTP connection, or drops its packets.
func TestOutcomesOfReuse(t *testing.T) {
	for _, test := range []struct {
		name, rule string
		class      record.Class
		detail     string
	}{
		{"reset: by a rule", "reject with tcp reset", record.Reset, DetailRetried},
		{"reply-timeout: dropped", "drop", record.ReplyTimeout, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			w.serve(t, func(l net.Listener) { serveKeepAlive(l, func(c *net.TCPConn, _ int) bool { return writeAnswer(c) }) })
			// The third request of a connection and later packets meet the rule, which counts handshake, requests and acknowledgements.
			w.router.nft(t, translate+"chain forward { type filter hook forward priority filter; "+
				"tcp dport 8080 tcp flags & psh != 0 ct original packets > 6 "+test.rule+"; }")
			w.router.sysctl(t, "net.netfilter.nf_conntrack_acct", "1")
			l := wiredLane(10)
			shortDeadlines(&l)
			l.Protocol = ProtocolHTTPReuse
			failed := 0
			for _, a := range w.probe(t, monotonic(t), 10e6, l, 20) {
				switch {
				case a.Class == record.OK:
				case a.Class == test.class && a.Detail == test.detail:
					failed++
				default:
					t.Errorf("attempt %d is %v (%s), want ok or %v (%s)", a.Seq, a.Class, a.Detail, test.class, test.detail)
				}
			}
			if failed < 2 || failed > 10 {
				t.Errorf("%d of 20 attempts failed, want one every few requests", failed)
			}
		})
	}
}

// An answer whose second part arrives after the reply deadline is a failure.
func TestIncompleteAnswerIsNotAnAnswer(t *testing.T) {
	w := newNetwork(t)
	w.serve(t, func(l net.Listener) {
		serveOnce(l, func(c *net.TCPConn) {
			text := answer("web-1", "node-1")
			_, _ = io.WriteString(c, text[:len(text)-2])
			_, _ = io.Copy(io.Discard, c)
		})
	})
	l := wiredLane(50)
	shortDeadlines(&l)
	outcomes(t, w.probe(t, monotonic(t), 10e6, l, 10), record.ReplyTimeout, "", netip.Addr{})
}

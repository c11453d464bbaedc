//go:build unix

package probes

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

// datagrams returns an address with a server that passes each datagram, without its first word, to answer.
func datagrams(t testing.TB, answer func(number string, send func(string))) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go serveDatagrams(conn, answer)
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func serveDatagrams(conn net.PacketConn, answer func(number string, send func(string))) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, number, _ := strings.Cut(string(buffer[:n]), " ")
		answer(number, func(text string) { _, _ = conn.WriteTo([]byte(text), from) })
	}
}

// answerAs returns a server that answers like the lab's backend.
func answerAs(pod string) func(string, func(string)) {
	return func(number string, send func(string)) { send(number + " " + pod + " node-1 abc 10.0.0.9 0") }
}

func udpLane(protocol string, target netip.AddrPort) Lane {
	l := loopbackLane(target, 100)
	l.Protocol = protocol
	return l
}

func TestDatagramOutcomes(t *testing.T) {
	quick := func(l *Lane) { l.ReplyDeadline = 200 * time.Millisecond }
	for _, test := range []struct {
		name   string
		server func(string, func(string))
		change func(*Lane)
		class  record.Class
		detail string
	}{
		{name: "an answer", server: answerAs("web-1"), class: record.OK},
		{name: "an answer that only repeats the number", server: func(number string, send func(string)) { send(number) },
			change: func(l *Lane) { l.Backends = nil }, class: record.OK},
		{name: "no identity", server: func(number string, send func(string)) { send(number) }, class: record.WrongAnswer, detail: DetailNoIdentity},
		{name: "another pod", server: answerAs("db-1"), class: record.Misrouted, detail: DetailBackend},
		{name: "another lane's answer", server: func(_ string, send func(string)) { send("9/0 web-1 node-1 abc - 0") },
			class: record.WrongAnswer, detail: DetailOtherAttempt},
		{name: "a number never sent", server: func(_ string, send func(string)) { send("1/99999 web-1 node-1 abc - 0") },
			class: record.WrongAnswer, detail: DetailOtherAttempt},
		{name: "garbage", server: func(_ string, send func(string)) { send("hello, who is there?") }, class: record.WrongAnswer, detail: "not an answer"},
		{name: "silence", server: func(string, func(string)) {}, change: quick, class: record.ReplyTimeout},
		{name: "late", server: func(number string, send func(string)) {
			time.AfterFunc(150*time.Millisecond, func() { answerAs("web-1")(number, send) }) // the tested answer time
		}, change: func(l *Lane) { l.DelayedAfter = 100 * time.Millisecond }, class: record.Delayed, detail: DetailSlow},
	} {
		for _, protocol := range []string{ProtocolUDPFresh, ProtocolUDPSticky} {
			t.Run(test.name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				l := udpLane(protocol, datagrams(t, test.server))
				if test.change != nil {
					test.change(&l)
				}
				sources := map[netip.AddrPort]bool{}
				for _, a := range probe(t, l, 10) {
					if a.Class != test.class || a.Detail != test.detail {
						t.Errorf("attempt %d is %v (%s), want %v (%s)", a.Seq, a.Class, a.Detail, test.class, test.detail)
					}
					if a.Class == record.OK && l.Backends != nil && (a.Backend != "web-1" || a.Node != "node-1") {
						t.Errorf("attempt %d was answered by %s on %s", a.Seq, a.Backend, a.Node)
					}
					if a.Connect != 0 || a.Source.Port() == 0 {
						t.Errorf("attempt %d from %s has a connect time of %v; UDP has none", a.Seq, a.Source, a.Connect)
					}
					sources[a.Source] = true
				}
				if sticky := protocol == ProtocolUDPSticky; sticky != (len(sources) == 1) {
					t.Errorf("%s used %d sources", protocol, len(sources))
				}
			})
		}
	}
}

// A duplicate answer, and one to a timed-out attempt, become the detail of the next ok attempt and fail no attempt.
func TestDuplicateAndLateAnswersAreRecorded(t *testing.T) {
	reply := answerAs("web-1")
	target := datagrams(t, func(number string, send func(string)) {
		switch {
		case strings.HasSuffix(number, "/2"):
			reply(number, send)
			reply(number, send)
		case strings.HasSuffix(number, "/5"): // after its deadline, before the last attempt
			time.AfterFunc(130*time.Millisecond, func() { reply(number, send) })
		default:
			reply(number, send)
		}
	})
	l := udpLane(ProtocolUDPSticky, target)
	l.Rate, l.ReplyDeadline = 20, 100*time.Millisecond
	details := map[string]int{}
	for _, a := range probe(t, l, 12) {
		if want := a.Seq == 5; want != (a.Class == record.ReplyTimeout) {
			t.Errorf("attempt %d is %v (%s)", a.Seq, a.Class, a.Detail)
		}
		details[a.Detail]++
	}
	if details[DetailDuplicate] != 1 || details[DetailTooLate] != 1 {
		t.Errorf("details %v, want each of the two once", details)
	}
}

// A wrong answer after the last attempt is the outcome of one more.
func TestWrongAnswerAfterTheLastAttemptIsRecorded(t *testing.T) {
	var got []record.Attempt
	e := newEngine(Config{Record: func(a record.Attempt) { got = append(got, a) }}, &fakeHost{at: time.Second})
	u := newUDP(&tcp{engine: e})
	e.protocols = map[string]protocol{ProtocolUDPSticky: u}
	l := udpLane(ProtocolUDPSticky, netip.MustParseAddrPort("127.0.0.1:53")).WithDefaults()
	n := e.beginLane(l, 0, 0)
	n.end, n.cursor.next = 500*time.Millisecond, 50 // all have ended
	s := &stickySocket{udp: u, lane: n, fd: -1, source: netip.MustParseAddrPort("127.0.0.1:4000"), lastSent: 490 * time.Millisecond}
	u.sticky[n] = s
	s.receive([]byte("hello, who is there?"))
	e.launch()
	want := record.Attempt{Lane: l.ID, Seq: 50, Intended: n.end, Start: time.Second, Source: s.source, TupleAge: 510 * time.Millisecond,
		Class: record.WrongAnswer, Detail: "not an answer"}
	if len(got) != 1 || got[0] != want || len(e.lanes) != 0 {
		t.Errorf("%+v, want %+v; lanes %v", got, want, e.lanes)
	}
}

// Answers in any order go to the attempts with their numbers.
func TestAnswersOutOfOrder(t *testing.T) {
	var held []func()
	target := datagrams(t, func(number string, send func(string)) {
		held = append(held, func() { answerAs("web-1")(number, send) })
		if len(held) == 5 {
			for i := range held {
				held[len(held)-1-i]()
			}
			held = nil
		}
	})
	for _, a := range probe(t, udpLane(ProtocolUDPSticky, target), 10) {
		if a.Class != record.OK {
			t.Errorf("attempt %d is %v (%s)", a.Seq, a.Class, a.Detail)
		}
	}
}

// Without a listener each attempt gets the ICMP error, and a sticky socket stays in use.
func TestUDPWithoutListenerIsRejected(t *testing.T) {
	target := testfiles.RefusingUDP(t)
	offender := target.Addr()
	if Unseen != "" { // the kernel tells the error, and not who sent it
		offender = netip.Addr{}
	}
	for _, protocol := range []string{ProtocolUDPFresh, ProtocolUDPSticky} {
		for _, a := range probe(t, udpLane(protocol, target), 10) {
			if a.Class != record.Rejected || a.Detail != "icmp 3/3" || a.Offender != offender {
				t.Errorf("%s: attempt %d is %v (%s) by %v", protocol, a.Seq, a.Class, a.Detail, a.Offender)
			}
		}
	}
}

// UDP attempts that start within a reply drop time out.
func TestReplyDropOfUDP(t *testing.T) {
	w := startWorker(t, context.Background())
	l := udpLane(ProtocolUDPFresh, datagrams(t, answerAs("web-1")))
	l.ReplyDeadline = 300 * time.Millisecond
	begin := w.now(t) + 100*time.Millisecond
	from, until := begin+103*time.Millisecond, begin+203*time.Millisecond
	for _, err := range []error{w.Start(l, begin), w.DropReplies(l.ID, from, until), w.Stop(l.ID, begin+400*time.Millisecond)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for len(w.seen) < 30 {
		w.next(t)
	}
	attempts, err := w.finish(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attempts[l.ID] {
		if dropped := a.Start >= from && a.Start < until; !tooLate(t, a) && dropped != (a.Class == record.ReplyTimeout) {
			t.Errorf("attempt %d at %v is %v (%s)", a.Seq, a.Start-begin, a.Class, a.Detail)
		}
	}
}

func TestParseDatagramAcceptsAnyInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 80),
			rapid.Map(rapid.StringMatching(`(attempt |echo )?[0-9]{1,6}/[0-9]{1,22}( [a-z0-9-]{1,20} [a-z-]{1,9} [a-z0-9]{1,9} [0-9a-f.:-]{1,30} [0-9]{1,14})?`),
				func(s string) []byte { return []byte(s) })).Draw(t, "answer")
		if _, backend, fault := parseDatagram(b, 7); fault == "" && (!validName(backend.pod) || !validName(backend.node)) {
			t.Fatalf("%q names %q on %q", b, backend.pod, backend.node)
		}
	})
	for _, seq := range []uint64{0, 42, 1<<64 - 1} {
		got, backend, fault := parseDatagram(fmt.Appendf(nil, "7/%d web-1 - abc 10.0.0.9 1500\n", seq), 7)
		if got != seq || fault != "" || string(backend.pod) != "web-1" || len(backend.node) != 0 || string(backend.client) != "10.0.0.9" || backend.terminating != 1500*time.Millisecond {
			t.Errorf("%d: %d %+v %q", seq, got, backend, fault)
		}
	}
}

package verify

import (
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// talk is a connection of an attempt, from the handshake on. The zero value is a handshake without an end.
type talk struct {
	syns       []time.Duration // sent again after the first one
	before     time.Duration   // FIN of an earlier connection with the same ports, after the SYN
	accepted   time.Duration
	finished   time.Duration // FIN of the server
	ended      time.Duration // FIN of the client
	bytes      uint32        // from the server until either FIN
	node, also string        // whose interface the first SYN passes, and the last one
}

// talk writes the packets of an attempt. All times are since its start.
func (w *wire) talk(a *record.Attempt, c talk) {
	const server = 7_000_000
	w.seq += 100_000
	isn, target := w.seq, recordtest.WebAddress
	syn := func(since time.Duration, node string) {
		w.write(clientPlace, a.Start+since, w.tcp(a.Source, target, &layers.TCP{SYN: true, Seq: isn}, 0))
		if node != "" {
			w.write(node, a.Start+since+20*time.Microsecond, w.tcp(a.Source, target, &layers.TCP{SYN: true, Seq: isn}, 0))
		}
	}
	back := func(since time.Duration, t layers.TCP) {
		if since != 0 {
			w.write(clientPlace, a.Start+since, w.tcp(target, a.Source, &t, 0))
		}
	}
	syn(0, c.node)
	for _, again := range c.syns {
		syn(again, c.also)
	}
	back(c.before, layers.TCP{FIN: true, ACK: true, Seq: 5_000, Ack: 1})
	back(c.accepted, layers.TCP{SYN: true, ACK: true, Seq: server, Ack: isn + 1})
	back(c.finished, layers.TCP{FIN: true, ACK: true, Seq: server + 1 + c.bytes, Ack: isn + 50})
	if c.ended != 0 {
		ack := server + 1 + c.bytes
		if c.finished != 0 && c.finished < c.ended {
			ack++
		}
		w.write(clientPlace, a.Start+c.ended, w.tcp(a.Source, target, &layers.TCP{FIN: true, ACK: true, Seq: isn + 50, Ack: ack}, 0))
	}
}

// withTalk verifies a lab whose attempt in the middle of the run has a class and a connection of its own. Its other attempts are answered.
func withTalk(t *testing.T, class record.Class, change func(a *record.Attempt, c *talk)) *Result {
	t.Helper()
	s := recordtest.DropOnNode2(false)
	s.Faults = nil
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 5 * time.Second, To: 60 * time.Second})
	w := newWire(t, recordtest.NodeNames...)
	middle := len(s.Attempts) / 2
	for i := range s.Attempts {
		a := &s.Attempts[i]
		node := s.Services[recordtest.WebAddress].Choose(a.Source, recordtest.WebAddress, a.Start)
		if i != middle {
			w.connect(a, recordtest.WebAddress, node)
			continue
		}
		c := talk{accepted: time.Millisecond, ended: 2 * time.Millisecond, bytes: 300, node: node, also: node}
		a.Class = class
		change(a, &c)
		w.talk(a, c)
	}
	return verified(t, s, w.capture(0))
}

// Each limit of docs/measuring.md, on both of its sides.
func TestOutcomesAtTheLimits(t *testing.T) {
	for name, test := range map[string]struct {
		class  record.Class
		change func(a *record.Attempt, c *talk)
		agrees bool
	}{
		"an answer after 700 ms is in time without a load balancer that terminates connections": {record.OK, func(_ *record.Attempt, c *talk) { c.ended = 700 * time.Millisecond }, true},
		"the same is not delayed":                                      {record.Delayed, func(_ *record.Attempt, c *talk) { c.ended = 700 * time.Millisecond }, false},
		"an answer after the reply deadline is none":                   {record.OK, func(_ *record.Attempt, c *talk) { c.ended = 2500 * time.Millisecond }, false},
		"a part of an answer until the reply deadline is a timeout":    {record.ReplyTimeout, func(_ *record.Attempt, c *talk) { c.ended, c.bytes = 1001*time.Millisecond, 40 }, true},
		"an answer just before the reply deadline is a tie":            {record.ReplyTimeout, func(_ *record.Attempt, c *talk) { c.ended = 995 * time.Millisecond }, true},
		"an answer long before it is no timeout":                       {record.ReplyTimeout, func(_ *record.Attempt, c *talk) { c.ended = 900 * time.Millisecond }, false},
		"a connection without an end, long before that of the capture": {record.OK, func(_ *record.Attempt, c *talk) { c.ended = 0 }, false},
		"an answer that the server cut off":                            {record.Closed, func(_ *record.Attempt, c *talk) { c.finished, c.bytes = 1500*time.Microsecond, 40 }, true},
		"an answer that the client ended is not cut off":               {record.Closed, func(*record.Attempt, *talk) {}, false},
		"the FIN of an earlier connection is no answer": {record.OK, func(_ *record.Attempt, c *talk) {
			c.before, c.bytes, c.ended = 500*time.Microsecond, 0, 900*time.Millisecond
		}, false},
		"a wrong answer to a SYN that was sent again counts as an answer": {record.WrongAnswer, func(_ *record.Attempt, c *talk) {
			c.syns, c.accepted, c.ended = []time.Duration{time.Second}, 1001*time.Millisecond, 1002*time.Millisecond
		}, true},
		"a SYN that no captured node saw cannot be accepted": {record.OK, func(_ *record.Attempt, c *talk) { c.node, c.also = "", "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if r := withTalk(t, test.class, test.change); r.Agrees() != test.agrees {
				t.Errorf("agrees: %t, want %t; %q, %.1000v", r.Agrees(), test.agrees, r.Doubt(), r.Findings)
			}
		})
	}
}

// The path of an attempt is that of its first SYN, in whatever order the places of a capture are read.
func TestThePathIsThatOfTheFirstSYN(t *testing.T) {
	for _, other := range recordtest.NodeNames {
		r := withTalk(t, record.Delayed, func(_ *record.Attempt, c *talk) {
			c.syns, c.accepted, c.ended, c.also = []time.Duration{time.Second}, 1001*time.Millisecond, 1002*time.Millisecond, other
		})
		if !r.Agrees() {
			t.Errorf("with the second SYN over %s: %.1000v", other, r.Findings)
		}
	}
}

// A verification is inconclusive if no measured lane can be verified, or if the capture does not tell how many packets it lost.
func TestCapturesThatProveNothing(t *testing.T) {
	s := losing()
	r := verified(t, s, captured(t, s).capture(0))
	r.Lanes[0].Control = true
	if r.Doubt() == "" {
		t.Error("lanes of the self-test alone agree")
	}
	w := captured(t, s)
	if err := w.w.Flush(); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, losing(), reader(w)); r.Doubt() == "" {
		t.Error("a capture that does not tell how many packets it lost agrees")
	}
}

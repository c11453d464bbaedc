package verify

import (
	"net/netip"
	"time"

	"github.com/hitless/hitless/record"
)

// connection is what the client's packets say about one connection.
type connection struct {
	client, server netip.AddrPort
	seq            uint32 // of the SYN
	syns           []time.Duration
	accepted       time.Duration // SYN-ACK; 0 for none
	serverSeq      uint32        // of the SYN-ACK
	refused        time.Duration // RST in answer to the SYN; 0 for none
	icmp           *icmpError    // the first one, and its time
	icmpAt         time.Duration
	reset          time.Duration    // RST of the server after the SYN-ACK; 0 for none
	finished       time.Duration    // FIN of the server; 0 for none
	ended          time.Duration    // first FIN or RST of the client after the SYN-ACK; 0 for none
	answer         uint32           // bytes that the server sent, as far as packets tell
	node           string           // the first whose interface the first SYN passed, and when; empty for none
	nodeAt         time.Duration    // of that packet
	nodes          []string         // all that any of the SYNs passed
	backends       []netip.AddrPort // to which the SYN went on with another target
	attempt        *record.Attempt
}

// begun is when the client sent its first SYN.
func (c *connection) begun() time.Duration { return c.syns[0] }

// pair is the two ends of a connection.
type pair struct{ client, server netip.AddrPort }

// connections groups the client's packets into connections, in order of their first SYN. A SYN with another sequence number begins a
// new one.
func connections(packets []packet) (all []*connection, byPair map[pair][]*connection) {
	byPair = map[pair][]*connection{}
	for i := range packets {
		p := &packets[i]
		if p.syn && !p.isACK {
			key := pair{p.from, p.to}
			if last := latest(byPair[key]); last != nil && last.seq == p.seq {
				last.syns = append(last.syns, p.at)
				continue
			}
			c := &connection{client: p.from, server: p.to, seq: p.seq, syns: []time.Duration{p.at}}
			all, byPair[key] = append(all, c), append(byPair[key], c)
			continue
		}
		if c := latest(byPair[pair{p.from, p.to}]); c != nil {
			c.sent(p)
		} else if c := latest(byPair[pair{p.to, p.from}]); c != nil {
			c.received(p)
		}
	}
	return all, byPair
}

func latest(all []*connection) *connection {
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// sent adds a packet of the client, or an ICMP error that quotes one.
func (c *connection) sent(p *packet) {
	switch {
	case p.icmp != nil:
		if c.icmp == nil && p.seq == c.seq {
			c.icmp, c.icmpAt = p.icmp, p.at
		}
	case c.accepted != 0 && c.ended == 0: // an earlier RST answers a server that remembers another connection
		c.ended = p.at
		switch {
		case !p.isACK:
		case c.finished != 0: // the FIN of the server takes a number too
			c.took(p.ack - 1)
		default:
			c.took(p.ack)
		}
	}
}

// received adds a packet of the server.
func (c *connection) received(p *packet) {
	switch {
	case p.icmp != nil:
	case p.syn:
		if c.accepted == 0 && p.ack == c.seq+1 {
			c.accepted, c.serverSeq = p.at, p.seq
		}
	case p.rst && c.accepted == 0:
		if c.refused == 0 && p.ack == c.seq+1 {
			c.refused = p.at
		}
	case p.rst && c.reset == 0:
		c.reset = p.at
		c.took(p.seq)
	case p.fin && c.finished == 0 && c.accepted != 0 && p.seq-c.serverSeq < 1<<31: // not that of an earlier connection with the same ports
		c.finished = p.at
		c.took(p.seq + p.payload)
	}
}

// took notes that the server had sent everything before a sequence number. A RST may have the number 0.
func (c *connection) took(next uint32) {
	if n := next - c.serverSeq - 1; n < 1<<31 {
		c.answer = max(c.answer, n)
	}
}

// within reports whether an event happened, not later than a time after the first SYN.
func (c *connection) within(event, limit time.Duration) bool {
	return event != 0 && event-c.begun() <= limit
}

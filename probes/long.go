package probes

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// long makes the attempts of tcp-long lanes: connections that stay open and are asked in turn, attempt k on connection
// k mod Lane.Connections. The first attempts open them. With a high rate they are busy; with a low one each is idle from
// one of its attempts to the next.
//
// A connection that dies is never replaced in silence. The attempts that wait on it take the class of its death. When
// none waits, the next one that is due on it does, without having been sent, and only the one after that opens another
// connection; at the end of the lane, what no attempt has told yet is told by one more attempt for each dead connection.
type long struct {
	tcp   *tcp
	lanes map[*lane][]*connection
}

// connection is one place of a tcp-long lane: the connection that is open there now, and those that came before.
type connection struct {
	long       *long
	lane       *lane
	token      int32
	generation int32 // counts the connections, so that a late event of an earlier one is known as such
	fd         int   // -1 while there is none
	open       bool  // the handshake is over
	source     netip.AddrPort
	dialStart  time.Duration // start of the handshake
	queue      []*flight     // attempts without an answer, oldest first; during the handshake, the first waits for its end
	partial    []byte        // of an answer that comes in pieces
	unreported failure       // that no attempt has told yet
	triedFresh bool          // a new connection was tried because this one is silent
}

// death is how a connection ended; the zero value is none.
type failure struct {
	class  record.Class
	detail string
}

func newLong(t *tcp) *long { return &long{tcp: t, lanes: map[*lane][]*connection{}} }

// of returns the connection that an attempt belongs to.
func (l *long) connectionOf(f *flight) *connection {
	all := l.lanes[f.lane]
	if all == nil {
		all = make([]*connection, f.lane.Connections)
		for i := range all {
			all[i] = &connection{long: l, lane: f.lane, fd: -1}
			all[i].token = l.tcp.engine.register(all[i])
		}
		l.lanes[f.lane] = all
	}
	return all[f.Seq%uint64(len(all))]
}

// start asks on a connection that is open, opens one where there is none, or tells of the one that died.
func (l *long) start(f *flight) {
	c := l.connectionOf(f)
	if c.fd < 0 && c.unreported.class == 0 {
		c.dial(f)
		return
	}
	f.Source, f.TupleAge = c.source, f.Start-c.dialStart
	if c.fd < 0 {
		died := c.unreported
		c.unreported = failure{}
		l.tcp.engine.finish(f, died.class, died.detail)
		return
	}
	c.queue = append(c.queue, f)
	if c.open {
		c.send(f)
	}
}

// ready is for flights that have a socket of their own, and there are none in these lanes.
func (l *long) ready(*flight, uint32) {}

// expire gives up the connection on which an attempt has waited too long, as its user would. Before that, at the stall
// threshold, it looks once what becomes of a new one.
func (l *long) expire(f *flight) {
	c := l.connectionOf(f)
	switch {
	case !c.open:
		f.Retrans = l.tcp.sockets.retransmits(c.fd)
		c.end(failure{class: record.ConnectTimeout})
	case f.list == &f.lane.waiting && c.answerTimeout() < f.lane.ReplyDeadline:
		deadline := f.deadline - c.answerTimeout() + f.lane.ReplyDeadline
		f.unlink()
		f.lane.overdue.add(f, deadline)
		if !c.triedFresh {
			c.triedFresh = true
			l.tcp.engine.tryFresh(c.lane, c.source)
		}
	default:
		c.end(failure{class: record.ReplyTimeout})
	}
}

// patience is how long an attempt waits for its answer until something is done about it.
func (c *connection) answerTimeout() time.Duration {
	if c.lane.fresh == nil {
		return c.lane.ReplyDeadline
	}
	return c.lane.StallAfter
}

// cancel aborts the connection of the attempt, once for all that wait on it.
func (l *long) cancel(f *flight) {
	if c := l.connectionOf(f); c.fd >= 0 {
		c.close(true)
	}
}

// leave closes the lane's connections and tells of those that died since they were last asked.
func (l *long) closeLane(n *lane) {
	for _, c := range l.lanes[n] {
		if c.fd >= 0 {
			c.close(n.Close == CloseRST)
		}
		if c.unreported.class != 0 {
			l.recordUnreported(n, c)
		}
	}
	delete(l.lanes, n)
}

// tell records an attempt beyond the schedule, charged to the end of the lane.
func (l *long) recordUnreported(n *lane, c *connection) {
	e := l.tcp.engine
	now := e.host.now()
	f := e.newFlight(n)
	f.Attempt = record.Attempt{Lane: n.ID, Seq: n.cursor.next, Intended: min(n.end, now), Start: now,
		Source: c.source, TupleAge: now - c.dialStart}
	n.cursor.next++
	e.finish(f, c.unreported.class, c.unreported.detail)
}

// dial begins a handshake for the attempt.
func (c *connection) dial(f *flight) {
	t := c.long.tcp
	errno, ok := t.open(f, unix.SOCK_STREAM)
	if !ok {
		return
	}
	if errno != 0 {
		t.engine.finish(f, record.Probe, errnoName(errno))
		return
	}
	c.generation++
	c.fd, c.open, c.dialStart, c.queue = f.fd, false, f.Start, append(c.queue[:0], f)
	errno = t.sockets.connect(f.fd, f.lane.Target)
	t.learnSource(f)
	f.TupleAge = 0 // from here on it is the connection's age
	c.source = f.Source
	if errno != 0 && errno != unix.EINPROGRESS {
		c.failDial(errno)
		return
	}
	if errno := t.poller.watch(c.fd, c.token, c.generation); errno != 0 {
		c.end(failure{record.Probe, errnoName(errno)})
		return
	}
	f.lane.dialing.add(f, f.Start+f.lane.DialDeadline)
}

// ready goes on with what the kernel reported.
func (c *connection) ready(generation int32, events uint32) {
	switch {
	case c.fd < 0 || generation != c.generation:
	case !c.open:
		c.connected(events)
	case events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0:
		c.receive()
	}
}

// connected ends the handshake, well or badly, and asks for everyone who waits.
func (c *connection) connected(events uint32) {
	t, f := c.long.tcp, c.queue[0]
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 { // see tcp.connected
		if errno, queued := t.sockets.handshakeError(c.fd); errno != 0 || queued.present() {
			c.failHandshake(errno, queued)
			return
		}
	}
	if events&unix.EPOLLOUT == 0 {
		return
	}
	f.Connect = t.engine.host.now() - f.Start
	f.Retrans = t.sockets.retransmits(c.fd)
	if errno := t.sockets.disableErrorQueue(c.fd, f.lane.Target); errno != 0 {
		c.end(failure{record.Probe, errnoName(errno)})
		return
	}
	c.open = true
	f.unlink()
	for _, f := range c.queue {
		if !c.send(f) {
			return
		}
	}
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
		c.receive()
	}
}

// ask sends an attempt's request; false means that the connection died of it.
func (c *connection) send(f *flight) bool {
	t := c.long.tcp
	f.lane.waiting.add(f, t.engine.host.now()+c.answerTimeout())
	request := t.requestFor(f)
	n, errno := sysTransfer(unix.SYS_WRITE, c.fd, request)
	switch {
	case errno == unix.EAGAIN || (errno == 0 && n < len(request)):
		// The peer has stopped reading long ago: the buffer holds thousands of requests.
		c.end(failure{record.ReplyTimeout, DetailFull})
	case errno != 0:
		c.failStream(errno)
	}
	return c.fd >= 0
}

// receive reads what has come until nothing is left (the events are edges), and matches answers with attempts.
func (c *connection) receive() {
	t := c.long.tcp
	for c.fd >= 0 {
		n, errno := sysTransfer(unix.SYS_READ, c.fd, t.buffer[:])
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			c.failStream(errno)
		case n == 0:
			c.end(failure{record.Closed, DetailEnd})
		default:
			c.partial = append(c.partial, t.buffer[:n]...)
			c.parseAnswers()
		}
	}
}

// take ends the attempts whose answers are complete.
func (c *connection) parseAnswers() {
	for c.fd >= 0 && len(c.partial) > 0 {
		n, fault := answerLength(c.partial)
		switch {
		case len(c.queue) == 0:
			c.end(failure{record.Misrouted, "bytes after the answer"})
		case fault != "":
			c.end(failure{record.Misrouted, fault})
		case n == 0:
			return // more must come
		default:
			c.endOldest(c.partial[:n])
			c.partial = append(c.partial[:0], c.partial[min(n, len(c.partial)):]...)
		}
	}
}

// judge ends the oldest attempt with its whole answer.
func (c *connection) endOldest(answer []byte) {
	t, f := c.long.tcp, c.queue[0]
	who, _, fault := parseReply(answer, false, 0)
	if fault != "" {
		c.end(failure{record.Misrouted, fault})
		return
	}
	t.identify(f, who)
	total := t.engine.host.now() - f.Start
	class, detail := classifyAnswer(&f.Attempt, &f.lane.Lane, total)
	if class == record.OK && total-f.Connect > f.lane.StallAfter {
		class, detail = record.Stalled, DetailSlow
	}
	c.queue = append(c.queue[:0], c.queue[1:]...)
	c.triedFresh = false
	t.engine.finish(f, class, detail)
}

// failDial ends a connection whose connect call failed at once.
func (c *connection) failDial(errno unix.Errno) {
	_, queued := c.long.tcp.sockets.handshakeError(c.fd)
	c.failHandshake(errno, queued)
}

// failWith ends a connection whose handshake failed.
func (c *connection) failHandshake(errno unix.Errno, queued icmp) {
	if errno == 0 {
		errno = queued.errno
	}
	first := c.queue[0]
	first.Retrans = c.long.tcp.sockets.retransmits(c.fd)
	for _, f := range c.queue {
		f.Offender = queued.offender
	}
	class, detail := classifyDial(errno, queued)
	if class == record.Reset || class == record.Closed { // established and over before we looked
		first.Connect = c.long.tcp.engine.host.now() - first.Start
	}
	c.end(failure{class, detail})
}

func (c *connection) failStream(errno unix.Errno) {
	class, detail := classifyStream(errno)
	c.end(failure{class, detail})
}

// die ends the connection and every attempt that waits on it, or remembers the death for the next one. When it was
// established, a new one is tried at once.
func (c *connection) end(d failure) {
	queue, established := c.queue, c.open
	c.queue = nil
	c.close(true)
	if len(queue) == 0 {
		c.unreported = d
	}
	for _, f := range queue {
		c.long.tcp.engine.finish(f, d.class, d.detail)
	}
	if established && d.class.Dropped() {
		c.long.tcp.engine.tryFresh(c.lane, c.source)
	}
}

// close lets go of the socket. What waits on the connection is the caller's.
func (c *connection) close(abort bool) {
	c.long.tcp.sockets.close(c.fd, abort)
	c.fd, c.open, c.queue, c.partial, c.triedFresh = -1, false, nil, c.partial[:0], false
}

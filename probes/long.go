package probes

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/hitless/hitless/record"
)

// long makes the attempts of tcp-long lanes, on connections that stay open: attempt k uses connection k mod
// Lane.Connections. The first attempts open the connections. At a high rate they are busy; at a low rate each is idle
// between its attempts.
//
// Each failure of a connection is the outcome of at least one attempt. Attempts that wait on the connection get its
// class. Without one, the next attempt due on it gets the class without being sent, and the attempt after that opens a
// new connection. At the end of the lane, each failure without an attempt is recorded by one more attempt.
type long struct {
	tcp   *tcp
	lanes map[*lane][]*connection
}

// connection is one of the connections of a tcp-long lane, which replaces it after a failure.
type connection struct {
	long       *long
	lane       *lane
	token      int32
	generation int32 // number of dials; detects events of an earlier connection
	fd         int   // -1 without a connection
	open       bool  // the handshake is complete
	source     netip.AddrPort
	dialStart  time.Duration // start of the handshake
	queue      []*flight     // attempts without an answer, oldest first; the first one has dialed
	partial    []byte        // the first part of an incomplete answer
	unreported failure       // not yet the outcome of an attempt
	triedFresh bool          // a fresh connection was tried since the last answer
}

// failure is how a connection failed; the zero value means no failure.
type failure struct {
	class  record.Class
	detail string
}

func newLong(t *tcp) *long { return &long{tcp: t, lanes: map[*lane][]*connection{}} }

// connectionOf returns the connection of an attempt.
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

// start sends the request on the open connection, dials without one, or records the connection's last failure.
func (l *long) start(f *flight) {
	c := l.connectionOf(f)
	if c.fd < 0 && c.unreported.class == 0 {
		c.dial(f)
		return
	}
	f.Source, f.TupleAge = c.source, f.Start-c.dialStart
	if c.fd < 0 {
		lost := c.unreported
		c.unreported = failure{}
		l.tcp.engine.finish(f, lost.class, lost.detail)
		return
	}
	c.queue = append(c.queue, f)
	if c.open {
		c.send(f)
	}
}

// ready is never called: flights of these lanes have no sockets of their own.
func (l *long) ready(*flight, uint32) {}

// expire closes the connection when an attempt has waited too long, as a user would. At the stall threshold before
// that, it tries a fresh connection once.
func (l *long) expire(f *flight) {
	c := l.connectionOf(f)
	switch {
	case !c.open:
		f.Retrans = l.tcp.sockets.retransmits(c.fd, l.tcp.engine.host.now()-f.Start)
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

// answerTimeout returns the first timeout of a sent request: the stall threshold if there is a fresh lane, else the
// reply deadline.
func (c *connection) answerTimeout() time.Duration {
	if c.lane.fresh == nil {
		return c.lane.ReplyDeadline
	}
	return c.lane.StallAfter
}

// cancel closes the attempt's connection; several attempts may share it.
func (l *long) cancel(f *flight) {
	if c := l.connectionOf(f); c.fd >= 0 {
		c.close(true)
	}
}

// closeLane closes the lane's connections and records their unreported failures.
func (l *long) closeLane(n *lane) {
	for _, c := range l.lanes[n] {
		if c.fd >= 0 {
			c.close(n.Close == CloseRST)
		}
		if c.unreported.class != 0 {
			l.tcp.engine.recordUnreported(n, c.source, c.dialStart, c.unreported)
		}
	}
	delete(l.lanes, n)
}

// recordUnreported records a failure as an attempt beyond the schedule, at the end of the lane. Its five-tuple was used last at an instant.
func (e *Engine) recordUnreported(n *lane, source netip.AddrPort, used time.Duration, why failure) {
	now := e.host.now()
	f := e.newFlight(n)
	f.Attempt = record.Attempt{Lane: n.ID, Seq: n.cursor.next, Intended: min(n.end, now), Start: now,
		Source: source, TupleAge: now - used}
	n.cursor.next++
	e.finish(f, why.class, why.detail)
}

// dial starts the handshake for the attempt.
func (c *connection) dial(f *flight) {
	t := c.long.tcp
	errno, ok := t.open(f, syscall.SOCK_STREAM)
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
	t.readSource(f)
	f.TupleAge = 0 // for tcp-long the age of the connection
	c.source = f.Source
	if errno != 0 && errno != syscall.EINPROGRESS {
		c.failDial(errno)
		return
	}
	if errno := t.poller.watch(c.fd, c.token, c.generation); errno != 0 {
		c.end(failure{record.Probe, errnoName(errno)})
		return
	}
	f.lane.dialing.add(f, f.Start+f.lane.DialDeadline)
}

// ready handles an event of the socket.
func (c *connection) ready(generation int32, events uint32) {
	switch {
	case c.fd < 0 || generation != c.generation:
	case !c.open:
		c.connected(events)
	case events&(eventIn|eventEnd|eventError) != 0:
		c.receive()
	}
}

// connected ends the handshake and sends the requests of all waiting attempts.
func (c *connection) connected(events uint32) {
	t, f := c.long.tcp, c.queue[0]
	if events&eventError != 0 { // see tcp.connected
		if errno, queued := t.sockets.handshakeError(c.fd); errno != 0 || queued.present() {
			c.failHandshake(errno, queued)
			return
		}
	}
	if events&eventOut == 0 {
		return
	}
	f.Connect = t.engine.host.now() - f.Start
	f.Retrans = t.sockets.retransmits(c.fd, f.Connect)
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
	if events&(eventIn|eventEnd) != 0 {
		c.receive()
	}
}

// send sends an attempt's request. It returns false when the connection has failed.
func (c *connection) send(f *flight) bool {
	t := c.long.tcp
	f.lane.waiting.add(f, t.engine.host.now()+c.answerTimeout())
	request := t.requestFor(f)
	n, errno := t.sockets.write(c.fd, request)
	switch {
	case errno == syscall.EAGAIN || (errno == 0 && n < len(request)):
		// The peer does not read: the buffer holds thousands of requests.
		c.end(failure{record.ReplyTimeout, DetailFull})
	case errno != 0:
		c.failStream(errno)
	}
	return c.fd >= 0
}

// receive reads until no data is left, since events are edge triggered, and assigns answers to attempts.
func (c *connection) receive() {
	t := c.long.tcp
	for c.fd >= 0 {
		n, errno := t.sockets.read(c.fd, t.buffer[:])
		switch {
		case errno == syscall.EAGAIN:
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

// parseAnswers ends the attempts whose answers are complete.
func (c *connection) parseAnswers() {
	for c.fd >= 0 && len(c.partial) > 0 {
		n, fault := answerLength(c.partial)
		switch {
		case len(c.queue) == 0:
			c.end(failure{record.WrongAnswer, "bytes after the answer"})
		case fault != "":
			c.end(failure{record.WrongAnswer, fault})
		case n == 0:
			return // incomplete
		default:
			c.endOldest(c.partial[:n])
			c.partial = append(c.partial[:0], c.partial[min(n, len(c.partial)):]...)
		}
	}
}

// endOldest ends the oldest attempt with its complete answer.
func (c *connection) endOldest(answer []byte) {
	t, f := c.long.tcp, c.queue[0]
	backend, _, fault := parseReply(answer, false, 0)
	if fault != "" {
		c.end(failure{record.WrongAnswer, fault})
		return
	}
	t.identify(f, backend)
	total := t.engine.host.now() - f.Start
	class, detail := classifyAnswer(&f.Attempt, &f.lane.Lane, total)
	if class == record.OK && total-f.Connect > f.lane.StallAfter {
		class, detail = record.Stalled, DetailSlow
	}
	c.queue = append(c.queue[:0], c.queue[1:]...)
	c.triedFresh = false
	t.engine.finish(f, class, detail)
}

// failDial ends a connection whose connect call failed.
func (c *connection) failDial(errno syscall.Errno) {
	_, queued := c.long.tcp.sockets.handshakeError(c.fd)
	c.failHandshake(errno, queued)
}

// failHandshake ends a connection whose handshake failed.
func (c *connection) failHandshake(errno syscall.Errno, queued icmp) {
	if errno == 0 {
		errno = queued.errno
	}
	first := c.queue[0]
	first.Retrans = c.long.tcp.sockets.retransmits(c.fd, c.long.tcp.engine.host.now()-first.Start)
	for _, f := range c.queue {
		f.Offender = queued.offender
	}
	class, detail := classifyDial(errno, queued)
	if class == record.Reset || class == record.Closed { // established and closed before this event
		first.Connect = c.long.tcp.engine.host.now() - first.Start
	}
	c.end(failure{class, detail})
}

func (c *connection) failStream(errno syscall.Errno) {
	class, detail := classifyStream(errno)
	c.end(failure{class, detail})
}

// end closes the connection and gives the failure to every waiting attempt, or keeps it for the next one. After a
// failure of an established connection it tries a fresh one.
func (c *connection) end(why failure) {
	queue, established := c.queue, c.open
	c.queue = nil
	c.close(true)
	if len(queue) == 0 {
		c.unreported = why
	}
	for _, f := range queue {
		c.long.tcp.engine.finish(f, why.class, why.detail)
	}
	if established && why.class.Dropped() {
		c.long.tcp.engine.tryFresh(c.lane, c.source)
	}
}

// close closes the socket. The caller ends the waiting attempts.
func (c *connection) close(abort bool) {
	c.long.tcp.sockets.close(c.fd, abort)
	c.fd, c.open, c.queue, c.partial, c.triedFresh = -1, false, nil, c.partial[:0], false
}

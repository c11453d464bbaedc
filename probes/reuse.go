package probes

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/hitless/hitless/record"
)

// reuse makes the attempts of http-reuse lanes like an HTTP client that keeps one idle connection: an attempt uses the
// idle connection, or a new one when there is none or it is in use. It never retries. When an idle connection has
// failed, ordinary clients retry the request on a new one (Go's net/http does for every GET), and hide 199 of 199
// resets from a measurement; here the attempt is a reset.
//
// A server may close an idle connection (RFC 9112, 9.3): a FIN is then no failure, and the next attempt makes a new
// connection. A RST is a failure, and the outcome of the next attempt.
type reuse struct {
	tcp   *tcp
	lanes map[*lane]*keepAlive
}

func newReuse(e *Engine, p *poller) *reuse {
	r := &reuse{tcp: newTCP(e, p), lanes: map[*lane]*keepAlive{}}
	r.tcp.keep = r.endAttempt
	return r
}

// keepAlive is the idle connection of a lane.
type keepAlive struct {
	reuse      *reuse
	lane       *lane
	token      int32
	generation int32 // number of connections; detects events of an earlier one
	fd         int   // -1 without a connection
	source     netip.AddrPort
	lastUsed   time.Duration // start of its last attempt
	attempt    *flight       // the attempt that uses it; nil for none
	unreported failure       // while idle; not yet the outcome of an attempt
}

// connectionOf returns the lane's keep-alive connection.
func (r *reuse) connectionOf(n *lane) *keepAlive {
	k := r.lanes[n]
	if k == nil {
		k = &keepAlive{reuse: r, lane: n, fd: -1}
		k.token = r.tcp.engine.register(k)
		r.lanes[n] = k
	}
	return k
}

// start sends the request on the idle connection, or on a new one.
func (r *reuse) start(f *flight) {
	k := r.connectionOf(f.lane)
	if k.unreported.class != 0 {
		f.Source, f.TupleAge = k.source, f.Start-k.lastUsed
		lost := k.unreported
		k.unreported = failure{}
		r.tcp.engine.finish(f, lost.class, lost.detail)
		return
	}
	if k.fd < 0 || k.attempt != nil {
		r.tcp.start(f)
		return
	}
	f.fd, f.Source, f.TupleAge = k.fd, k.source, f.Start-k.lastUsed
	k.attempt, k.lastUsed = f, f.Start
	f.lane.waiting.add(f, f.Start+f.lane.ReplyDeadline)
	request := r.tcp.requestFor(f)
	n, errno := r.tcp.sockets.write(f.fd, request)
	switch {
	case errno != 0:
		r.tcp.failStream(f, errno)
	case n < len(request): // the send buffer is empty after an answer
		r.tcp.end(f, record.Probe, "request not taken whole")
	}
}

// ready handles an event of an attempt with a new connection.
func (r *reuse) ready(f *flight, events uint32) { r.tcp.ready(f, events) }

func (r *reuse) expire(f *flight) { r.tcp.expire(f) }

// cancel closes the attempt's connection.
func (r *reuse) cancel(f *flight) {
	if k := r.connectionOf(f.lane); k.attempt == f {
		k.attempt, k.fd = nil, -1
	}
	r.tcp.cancel(f)
}

// closeLane closes the idle connection. An unreported failure is recorded by one more attempt at the lane's end.
func (r *reuse) closeLane(n *lane) {
	k := r.lanes[n]
	delete(r.lanes, n)
	if k == nil {
		return
	}
	if k.fd >= 0 {
		r.tcp.sockets.close(k.fd, n.Close == CloseRST)
		k.fd = -1
	}
	if k.unreported.class == 0 {
		return
	}
	e := r.tcp.engine
	now := e.host.now()
	f := e.newFlight(n)
	f.Attempt = record.Attempt{Lane: n.ID, Seq: n.cursor.next, Intended: min(n.end, now), Start: now, Source: k.source, TupleAge: now - k.lastUsed}
	n.cursor.next++
	e.finish(f, k.unreported.class, k.unreported.detail)
}

// endAttempt returns the outcome of an attempt that ends, and whether its connection stays open.
func (r *reuse) endAttempt(f *flight, class record.Class, detail string) (record.Class, string, bool) {
	k := r.connectionOf(f.lane)
	good := class == record.OK || class == record.Delayed
	switch {
	case k.attempt == f && good:
		k.attempt = nil
		return class, detail, k.checkIdle()
	case k.attempt == f:
		k.attempt, k.fd = nil, -1
		if (class == record.Reset || class == record.Closed) && len(f.partial) == 0 {
			class, detail = record.Reset, DetailRetried
		}
		k.tryFresh(class)
		return class, detail, false
	case !good || k.fd >= 0:
		return class, detail, false
	}
	return class, detail, k.adopt(f)
}

// adopt keeps the connection of an attempt; false means that it has already ended.
func (k *keepAlive) adopt(f *flight) bool {
	k.generation++
	if k.reuse.tcp.poller.setToken(f.fd, k.token, k.generation) != 0 {
		return false
	}
	k.fd, k.source, k.lastUsed = f.fd, f.Source, f.Start
	return k.checkIdle()
}

// ready handles an event: for the attempt that uses the connection, or of the idle connection.
func (k *keepAlive) ready(generation int32, events uint32) {
	switch {
	case k.fd < 0 || generation != k.generation:
	case k.attempt != nil:
		k.reuse.tcp.ready(k.attempt, events)
	default:
		if fd := k.fd; !k.checkIdle() {
			k.reuse.tcp.sockets.close(fd, true)
		}
	}
}

// checkIdle reads from the idle connection and reports whether it is open. A failure is kept for the next attempt; the
// caller closes the socket.
func (k *keepAlive) checkIdle() bool {
	t := k.reuse.tcp
	n, errno := t.sockets.read(k.fd, t.buffer[:])
	if errno == syscall.EAGAIN {
		return true
	}
	k.fd = -1
	switch {
	case errno != 0:
		k.unreported.class, k.unreported.detail = classifyStream(errno)
	case n > 0:
		k.unreported = failure{record.WrongAnswer, "bytes after the answer"}
	}
	k.tryFresh(k.unreported.class)
	return false
}

// tryFresh tries a fresh connection after a failure of class.
func (k *keepAlive) tryFresh(class record.Class) {
	if class.Dropped() && class != 0 {
		k.reuse.tcp.engine.tryFresh(k.lane, k.source)
	}
}

package probes

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// reuse makes the attempts of http-reuse lanes as an HTTP client does that keeps one connection when it is idle: an
// attempt takes the kept connection, or makes a new one when there is none or when it is in use. The difference is that
// nothing is ever sent twice. When a kept connection turns out to be dead, ordinary clients send the request again on a
// new one without a word (Go's net/http does for every GET), and so hide 199 of 199 resets from who measures with them;
// here the attempt is a reset.
//
// A server may close a connection that is idle (RFC 9112, 9.3): a FIN that comes then is no failure, and the next
// attempt makes a new connection. A RST that comes then is one, and the next attempt is charged with it.
type reuse struct {
	tcp   *tcp
	lanes map[*lane]*keepAlive
}

func newReuse(e *Engine, p *poller) *reuse {
	r := &reuse{tcp: newTCP(e, p), lanes: map[*lane]*keepAlive{}}
	r.tcp.keep = r.endAttempt
	return r
}

// keptSocket is the connection that a lane keeps.
type keepAlive struct {
	reuse      *reuse
	lane       *lane
	token      int32
	generation int32 // counts the connections, so that a late event of an earlier one is known as such
	fd         int   // -1 while there is none
	source     netip.AddrPort
	lastUsed   time.Duration // when its last attempt started
	attempt    *flight       // the attempt that uses it; nil while it is idle
	unreported failure       // while it was idle, and no attempt has told yet
}

// of returns the lane's kept connection.
func (r *reuse) connectionOf(n *lane) *keepAlive {
	k := r.lanes[n]
	if k == nil {
		k = &keepAlive{reuse: r, lane: n, fd: -1}
		k.token = r.tcp.engine.register(k)
		r.lanes[n] = k
	}
	return k
}

// start asks on the kept connection, or on a new one.
func (r *reuse) start(f *flight) {
	k := r.connectionOf(f.lane)
	if k.unreported.class != 0 {
		f.Source, f.TupleAge = k.source, f.Start-k.lastUsed
		died := k.unreported
		k.unreported = failure{}
		r.tcp.engine.finish(f, died.class, died.detail)
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
	n, errno := sysTransfer(unix.SYS_WRITE, f.fd, request)
	switch {
	case errno != 0:
		r.tcp.failStream(f, errno)
	case n < len(request): // the last request was answered, so its room is free
		r.tcp.end(f, record.Probe, "request not taken whole")
	}
}

// ready is for attempts that made their connection.
func (r *reuse) ready(f *flight, events uint32) { r.tcp.ready(f, events) }

func (r *reuse) expire(f *flight) { r.tcp.expire(f) }

// cancel aborts the attempt's connection.
func (r *reuse) cancel(f *flight) {
	if k := r.connectionOf(f.lane); k.attempt == f {
		k.attempt, k.fd = nil, -1
	}
	r.tcp.cancel(f)
}

// leave closes the kept connection, and tells of its death if no attempt has: by one more, charged to the lane's end.
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

// over decides, for an attempt that ends, what it has seen and whether its connection is kept.
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

// take keeps the connection that an attempt made; false means that it is over already.
func (k *keepAlive) adopt(f *flight) bool {
	k.generation++
	if k.reuse.tcp.poller.setToken(f.fd, k.token, k.generation) != 0 {
		return false
	}
	k.fd, k.source, k.lastUsed = f.fd, f.Source, f.Start
	return k.checkIdle()
}

// ready goes on with the attempt that uses the connection, or sees what happens to it while it is idle.
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

// alive looks at the idle connection. When it is over it is let go of, and its death is remembered unless it was a proper
// one; the caller closes the socket.
func (k *keepAlive) checkIdle() bool {
	t := k.reuse.tcp
	n, errno := sysTransfer(unix.SYS_READ, k.fd, t.buffer[:])
	if errno == unix.EAGAIN {
		return true
	}
	k.fd = -1
	switch {
	case errno != 0:
		k.unreported.class, k.unreported.detail = classifyStream(errno)
	case n > 0:
		k.unreported = failure{record.Misrouted, "bytes after the answer"}
	}
	k.tryFresh(k.unreported.class)
	return false
}

// look tries a new connection when the kept one has failed.
func (k *keepAlive) tryFresh(class record.Class) {
	if class.Dropped() && class != 0 {
		k.reuse.tcp.engine.tryFresh(k.lane, k.source)
	}
}

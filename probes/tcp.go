package probes

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hitless/hitless/record"
)

// tcp makes the attempts of tcp-new lanes: bind, connect, one HTTP request, its answer, close. Those of tcp-connect lanes end with the
// handshake.
//
// It uses raw non-blocking sockets in the engine's goroutine. net.Dialer closes the socket of a failed dial before
// TCP_INFO and the error queue can be read, and costs a goroutine and some fifteen allocations per attempt. Here an
// attempt is two events, no goroutine and no allocation.
type tcp struct {
	engine  *Engine
	poller  *poller
	sockets *sockets
	names   nameCache
	// keep, if set, may take the socket of an attempt that ends and change its outcome; see reuse.
	keep    func(f *flight, class record.Class, detail string) (record.Class, string, bool)
	buffer  [2 * maxReply]byte
	request []byte
}

func newTCP(e *Engine, p *poller) *tcp {
	return &tcp{engine: e, poller: p, sockets: newSockets(p), names: nameCache{}}
}

// requestHead returns a lane's request up to the attempt's number. The header makes it possible to find the attempt in
// the log of a backend or a proxy. There is no `Connection: close`, because the client closes first.
func requestHead(l Lane) []byte {
	if l.overUDP() {
		return datagramHead(l)
	}
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Hitless-Attempt: %d/", l.Path, l.Host, l.ID)
}

// start starts the handshake.
func (t *tcp) start(f *flight) {
	errno, ok := t.open(f, syscall.SOCK_STREAM)
	if !ok {
		return
	}
	if errno != 0 {
		t.engine.finish(f, record.Probe, errnoName(errno))
		return
	}
	if errno := t.sockets.dropReplies(f); errno != 0 {
		t.end(f, record.Probe, errnoName(errno))
		return
	}
	errno = t.sockets.connect(f.fd, f.lane.Target)
	t.readSource(f)
	if errno != 0 && errno != syscall.EINPROGRESS {
		t.failDial(f, errno)
		return
	}
	if errno := t.poller.watch(f.fd, f.token, f.generation); errno != 0 {
		t.end(f, record.Probe, errnoName(errno))
		return
	}
	f.lane.dialing.add(f, f.Start+f.lane.DialDeadline)
}

// portTries limits the search for a port that no other program uses: with half of the ports in use, one search in 10^19
// fails.
const portTries = 64

// open draws the flight's five-tuple and creates its socket. It skips ports that other programs use or that a
// connection holds in TIME_WAIT. The socket belongs to the flight. ok is false when no five-tuple was left and the
// flight has ended.
func (t *tcp) open(f *flight, kind int) (errno syscall.Errno, ok bool) {
	again := f.lane.Policy != PolicyFresh
	for range portTries {
		if !t.engine.drawTuple(f) {
			return 0, false
		}
		f.fd, errno = t.sockets.open(kind, f.lane.Target, f.Source, again)
		if errno != syscall.EADDRINUSE || again || !f.Source.Addr().IsUnspecified() {
			break
		}
	}
	return errno, true
}

// readSource reads the address that the kernel chose. The path of an attempt without an answer can then be computed
// from its five-tuple too.
func (t *tcp) readSource(f *flight) {
	if !f.Source.Addr().IsUnspecified() {
		return
	}
	f.Source = t.sockets.local(f.fd)
	if f.Source.Port() == 0 || f.Source.Addr().IsUnspecified() {
		f.Source = netip.AddrPort{}
	}
}

// ready handles an event of the socket.
func (t *tcp) ready(f *flight, events uint32) {
	if f.list == &f.lane.dialing {
		t.connected(f, events)
		return
	}
	if events&(eventIn|eventEnd|eventError) != 0 {
		t.receive(f)
	}
}

// connected ends the handshake and sends the request.
func (t *tcp) connected(f *flight, events uint32) {
	if events&eventError != 0 {
		// An ICMP error that arrives while the socket is locked is queued, but leaves the socket in SYN_SENT
		// (tcp_v4_err()). In a lab of one kernel that is always the case, within connect. SO_ERROR and the queue have
		// it nevertheless.
		if errno, queued := t.sockets.handshakeError(f.fd); errno != 0 || queued.present() {
			t.failHandshake(f, errno, queued)
			return
		}
	}
	if events&eventOut == 0 {
		return
	}
	now := t.engine.host.now()
	f.Connect = now - f.Start
	f.Retrans = t.sockets.retransmits(f.fd, f.Connect)
	if errno := t.sockets.disableErrorQueue(f.fd, f.lane.Target); errno != 0 {
		t.end(f, record.Probe, errnoName(errno))
		return
	}
	if f.lane.Protocol == ProtocolTCPDial {
		class, detail := classifyAnswer(&f.Attempt, &f.lane.Lane, f.Connect)
		t.end(f, class, detail)
		return
	}
	f.unlink()
	f.lane.waiting.add(f, now+f.lane.ReplyDeadline)
	request := t.requestFor(f)
	n, errno := t.sockets.write(f.fd, request)
	switch {
	case errno != 0:
		t.failStream(f, errno)
	case n < len(request): // the send buffer of a new connection always has space for a request
		t.end(f, record.Probe, "request not taken whole")
	case events&(eventIn|eventEnd) != 0:
		t.receive(f)
	}
}

// requestFor returns an attempt's request; it is valid until the next call.
func (t *tcp) requestFor(f *flight) []byte {
	t.request = append(t.request[:0], f.lane.request...)
	t.request = strconv.AppendUint(t.request, f.Seq, 10)
	t.request = append(t.request, headEnd...)
	return t.request
}

// receive reads until no data is left, since events are edge triggered, or the answer is complete.
func (t *tcp) receive(f *flight) {
	for {
		n, errno := t.sockets.read(f.fd, t.buffer[:])
		if errno == syscall.EAGAIN {
			return
		}
		if errno != 0 {
			t.failStream(f, errno)
			return
		}
		answer := t.buffer[:n]
		if len(f.partial) > 0 || n == 0 {
			f.partial = append(f.partial, answer...)
			answer = f.partial
		}
		if t.handleAnswer(f, answer, n == 0) {
			return
		}
		if len(f.partial) == 0 {
			f.partial = append(f.partial, answer...)
		}
	}
}

// handleAnswer ends the attempt if the answer is complete, wrong, or can no longer become complete.
func (t *tcp) handleAnswer(f *flight, answer []byte, ended bool) bool {
	backend, done, fault := parseReply(answer, ended, f.lane.Status)
	if !done {
		if ended {
			t.end(f, record.Closed, DetailEnd)
		}
		return ended
	}
	if fault != "" {
		t.end(f, record.WrongAnswer, fault)
		return true
	}
	t.identify(f, backend)
	class, detail := classifyAnswer(&f.Attempt, &f.lane.Lane, t.engine.host.now()-f.Start)
	t.end(f, class, detail)
	return true
}

// identify records the backend that answered.
func (t *tcp) identify(f *flight, backend identity) {
	f.Backend, f.Node, f.Generation = t.names.intern(backend.pod), t.names.intern(backend.node), t.names.intern(backend.generation)
	f.Terminating, f.Client = backend.terminating, t.clientOf(f, backend)
}

// clientOf returns the client's address as the pod saw it.
func (t *tcp) clientOf(f *flight, backend identity) string {
	var own [64]byte
	if bytes.Equal(backend.client, f.Source.Addr().Unmap().AppendTo(own[:0])) {
		return record.ClientUnchanged
	}
	return t.names.intern(backend.client)
}

// synLost is the minimum connect time after which a SYN counts as lost: the kernel retransmits a SYN after 1 s
// (TCP_TIMEOUT_INIT, RFC 6298), and half of that allows for other settings. An earlier retransmission follows an ACK
// from a socket that remembers a connection of the same five-tuple: the client sends a RST and its SYN again after two
// ticks, 8 ms (TCP_TIMEOUT_MIN, tcp_rcv_synsent_state_process()). Nothing was lost then.
const synLost = 500 * time.Millisecond

// classifyAnswer classifies an attempt with a well-formed answer that took the time total.
func classifyAnswer(a *record.Attempt, l *Lane, total time.Duration) (record.Class, string) {
	switch {
	case len(l.Backends) > 0 && a.Backend == "":
		return record.WrongAnswer, DetailNoIdentity
	case !allowed(l.Backends, a.Backend):
		return record.Misrouted, DetailBackend
	case a.Retrans > 0 && a.Connect >= synLost:
		return record.Delayed, ""
	case l.DelayedAfter > 0 && total > l.DelayedAfter:
		return record.Delayed, DetailSlow
	case a.Retrans > 0:
		return record.OK, DetailRemembered
	}
	return record.OK, ""
}

func allowed(prefixes []string, backend string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(backend, p) })
}

// expire ends an attempt whose deadline has passed.
func (t *tcp) expire(f *flight) {
	if f.list == &f.lane.waiting {
		t.end(f, record.ReplyTimeout, "")
		return
	}
	f.Retrans = t.sockets.retransmits(f.fd, t.engine.host.now()-f.Start)
	t.end(f, record.ConnectTimeout, "")
}

// failDial ends an attempt whose connect call failed.
func (t *tcp) failDial(f *flight, errno syscall.Errno) {
	_, queued := t.sockets.handshakeError(f.fd)
	t.failHandshake(f, errno, queued)
}

// failHandshake ends an attempt whose handshake failed.
func (t *tcp) failHandshake(f *flight, errno syscall.Errno, queued icmp) {
	if errno == 0 {
		errno = queued.errno
	}
	f.Retrans = t.sockets.retransmits(f.fd, t.engine.host.now()-f.Start)
	f.Offender = queued.offender
	class, detail := classifyDial(errno, queued)
	if class == record.Reset || class == record.Closed { // established and closed before this event
		f.Connect = t.engine.host.now() - f.Start
	}
	t.end(f, class, detail)
}

func (t *tcp) failStream(f *flight, errno syscall.Errno) {
	class, detail := classifyStream(errno)
	t.end(f, class, detail)
}

// end closes the socket and ends the attempt. Successful connections close as the lane says. Failed ones are aborted:
// otherwise the kernel would retransmit after the outcome was recorded, and keep a five-tuple of a reuse lane in use.
func (t *tcp) end(f *flight, class record.Class, detail string) {
	good := class == record.OK || class == record.Delayed
	fd, abort, kept := f.fd, f.lane.Close == CloseRST || !good, false
	if t.keep != nil {
		class, detail, kept = t.keep(f, class, detail)
	}
	t.engine.finish(f, class, detail)
	if !kept {
		t.sockets.close(fd, abort)
	}
}

// cancel aborts the connection.
func (t *tcp) cancel(f *flight) { t.sockets.close(f.fd, true) }

// closeLane does nothing: connections belong to attempts.
func (t *tcp) closeLane(*lane) {}

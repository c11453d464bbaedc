package probes

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/hitless/hitless/record"
)

// udp makes the attempts of udp-fresh and udp-sticky lanes: one datagram with the attempt's number, and an answer that
// repeats it. Nothing is retransmitted. Without an answer within the reply deadline the class is reply-timeout; with an
// answer in its second half, delayed.
//
// An ICMP port unreachable is `rejected` from any sender: for UDP, a host without a listener sends it too.
type udp struct {
	tcp    *tcp // shared with TCP: sockets, sources, names
	sticky map[*lane]*stickySocket
	buffer [maxReply]byte
}

func newUDP(t *tcp) *udp { return &udp{tcp: t, sticky: map[*lane]*stickySocket{}} }

// start sends the attempt's datagram.
func (u *udp) start(f *flight) {
	if f.lane.Protocol == ProtocolUDPSticky {
		u.startSticky(f)
		return
	}
	errno, ok := u.open(f)
	if !ok {
		return
	}
	if errno == 0 {
		errno = u.tcp.poller.watchInput(f.fd, f.token, f.generation)
	}
	if errno == 0 {
		_, errno = u.tcp.sockets.write(f.fd, u.requestFor(f))
	}
	if errno != 0 {
		u.fail(f, errno)
		return
	}
	f.lane.waiting.add(f, f.Start+f.lane.ReplyDeadline)
}

// open creates the flight's socket and connects it, so that the kernel reports ICMP errors and drops packets from other
// addresses. The socket belongs to the flight even on an error. ok is false when no five-tuple was left and the flight
// has ended.
func (u *udp) open(f *flight) (errno syscall.Errno, ok bool) {
	if errno, ok = u.tcp.open(f, syscall.SOCK_DGRAM); !ok {
		return 0, false
	}
	if errno == 0 {
		errno = u.tcp.sockets.dropReplies(f)
	}
	if errno == 0 {
		errno = u.tcp.sockets.connect(f.fd, f.lane.Target)
	}
	if errno == 0 {
		u.tcp.readSource(f)
	}
	return errno, true
}

// requestFor returns an attempt's datagram; it is valid until the next call.
func (u *udp) requestFor(f *flight) []byte {
	u.tcp.request = strconv.AppendUint(append(u.tcp.request[:0], f.lane.request...), f.Seq, 10)
	return u.tcp.request
}

// ready reads the answer or the error.
func (u *udp) ready(f *flight, _ uint32) {
	n, errno := u.tcp.sockets.read(f.fd, u.buffer[:])
	switch {
	case errno == syscall.EAGAIN:
		return
	case errno != 0:
		u.fail(f, errno)
		return
	}
	seq, backend, fault := parseDatagram(u.buffer[:n], f.lane.ID)
	if fault == "" && seq != f.Seq {
		fault = DetailOtherAttempt
	}
	class, detail := u.classify(f, backend, fault)
	u.end(f, class, detail)
}

// classify classifies an attempt by its answer.
func (u *udp) classify(f *flight, backend identity, fault string) (record.Class, string) {
	if fault != "" {
		return record.WrongAnswer, fault
	}
	u.tcp.identify(f, backend)
	return classifyAnswer(&f.Attempt, &f.lane.Lane, u.tcp.engine.host.now()-f.Start)
}

// fail ends an attempt whose socket reports an error: an ICMP error, or the probe's own.
func (u *udp) fail(f *flight, errno syscall.Errno) {
	var queued icmp
	if f.fd >= 0 {
		_, queued = u.tcp.sockets.handshakeError(f.fd)
	}
	f.Offender = queued.offender
	class, detail := classifyDial(errno, queued)
	u.end(f, class, detail)
}

func (u *udp) end(f *flight, class record.Class, detail string) {
	fd := f.fd
	u.tcp.engine.finish(f, class, detail)
	if fd >= 0 {
		u.tcp.sockets.close(fd, false)
	}
}

// expire ends an attempt without an answer in time.
func (u *udp) expire(f *flight) { u.end(f, record.ReplyTimeout, "") }

// cancel closes the attempt's socket, if it has its own.
func (u *udp) cancel(f *flight) {
	if f.fd >= 0 {
		u.tcp.sockets.close(f.fd, false)
	}
}

// closeLane closes the socket of a sticky lane, and records a wrong answer after its last attempt.
func (u *udp) closeLane(n *lane) {
	s := u.sticky[n]
	if s != nil && s.fd >= 0 {
		u.tcp.sockets.close(s.fd, false)
	}
	if s != nil && s.pendingFault != "" {
		u.tcp.engine.recordUnreported(n, s.source, s.lastSent, failure{record.WrongAnswer, s.pendingFault})
	}
	delete(u.sticky, n)
}

// stickySocket is the socket of a udp-sticky lane. It is never replaced: a client that keeps its five-tuple finds
// conntrack entries that point to an exited pod.
type stickySocket struct {
	udp      *udp
	lane     *lane
	token    int32
	fd       int // -1 without a socket
	source   netip.AddrPort
	lastSent time.Duration // time of the last datagram
	// The last answered numbers plus one, at their remainder modulo the size: they separate duplicate answers from late
	// ones.
	answered      [1024]uint64
	pendingDetail string // for the next ok attempt
	pendingFault  string // of an unexpected answer: the outcome of the next attempt, or of one more at the lane's end
}

// startSticky sends the attempt's datagram on the lane's socket.
func (u *udp) startSticky(f *flight) {
	s := u.sticky[f.lane]
	if s == nil {
		s = &stickySocket{udp: u, lane: f.lane, fd: -1}
		s.token = u.tcp.engine.register(s)
		u.sticky[f.lane] = s
	}
	if s.fd < 0 && !s.open(f) {
		return
	}
	f.Source, f.TupleAge, s.lastSent = s.source, f.Start-s.lastSent, f.Start
	if s.pendingFault != "" {
		fault := s.pendingFault
		s.pendingFault = ""
		u.tcp.engine.finish(f, record.WrongAnswer, fault)
		return
	}
	f.lane.waiting.add(f, f.Start+f.lane.ReplyDeadline)
	_, errno := u.tcp.sockets.write(s.fd, u.requestFor(f))
	if errno != 0 && s.readErrors() > 0 && f.lane != nil {
		// The error belonged to an earlier datagram, and nothing was sent (udp_sendmsg() checks sk_err first).
		_, errno = u.tcp.sockets.write(s.fd, u.requestFor(f))
	}
	if errno != 0 && f.lane != nil {
		s.fail(f, errno)
	}
}

// open creates the socket with the flight's five-tuple. On an error it ends the flight and returns false.
func (s *stickySocket) open(f *flight) bool {
	u := s.udp
	errno, ok := u.open(f)
	if !ok {
		return false
	}
	if errno == 0 {
		errno = u.tcp.poller.watchInput(f.fd, s.token, 0)
	}
	if errno != 0 {
		u.fail(f, errno)
		return false
	}
	s.fd, s.source, s.lastSent = f.fd, f.Source, f.Start-f.TupleAge
	f.fd = -1 // the socket belongs to the lane
	return true
}

// ready reads all pending answers and errors.
func (s *stickySocket) ready(_ int32, _ uint32) {
	for s.fd >= 0 {
		n, errno := s.udp.tcp.sockets.read(s.fd, s.udp.buffer[:])
		switch {
		case errno == syscall.EAGAIN:
			s.readErrors()
			return
		case errno != 0:
			s.readErrors() // the read has cleared the socket's error
		default:
			s.receive(s.udp.buffer[:n])
		}
	}
}

// receive assigns an answer to its attempt.
func (s *stickySocket) receive(answer []byte) {
	seq, backend, fault := parseDatagram(answer, s.lane.ID)
	if fault == "" && seq >= s.lane.cursor.next {
		fault = DetailOtherAttempt
	}
	if fault != "" {
		s.assignFault(fault)
		return
	}
	place := &s.answered[seq%uint64(len(s.answered))]
	f := s.waiting(seq)
	switch {
	case f == nil && *place == seq+1:
		s.pendingDetail = DetailDuplicate
		return
	case f == nil:
		s.pendingDetail = DetailTooLate
		return
	}
	*place = seq + 1
	class, detail := s.udp.classify(f, backend, "")
	if detail == "" {
		detail, s.pendingDetail = s.pendingDetail, ""
	}
	s.udp.tcp.engine.finish(f, class, detail)
}

// assignFault makes a wrong answer the outcome of the oldest waiting attempt, or else of the next one.
func (s *stickySocket) assignFault(fault string) {
	if f := s.lane.waiting.first; f != nil {
		s.udp.tcp.engine.finish(f, record.WrongAnswer, fault)
		return
	}
	s.pendingFault = fault
}

// waiting returns the attempt with that number if it still waits.
func (s *stickySocket) waiting(seq uint64) *flight {
	for f := s.lane.waiting.last; f != nil; f = f.prev {
		if f.Seq == seq {
			return f
		}
	}
	return nil
}

// readErrors reads the queued ICMP errors, ends the attempt of each returned datagram, and returns their number.
func (s *stickySocket) readErrors() int {
	for n := 0; ; n++ {
		payload, queued, more := s.udp.tcp.sockets.nextError(s.fd, s.udp.buffer[:])
		if !more {
			return n
		}
		f := s.lane.waiting.first
		if seq, _, fault := parseDatagram(payload, s.lane.ID); fault == "" {
			f = s.waiting(seq)
		}
		if f == nil { // its attempt has ended at its deadline
			continue
		}
		f.Offender = queued.offender
		class, detail := classifyDial(queued.errno, queued)
		s.udp.tcp.engine.finish(f, class, detail)
	}
}

// fail ends an attempt that could not be sent because of a local error.
func (s *stickySocket) fail(f *flight, errno syscall.Errno) {
	class, detail := classifyDial(errno, icmp{})
	s.udp.tcp.engine.finish(f, class, detail)
}

// First words of a request datagram. The lab's backend answers the first with the attempt's number and its identity;
// agnhost netexec and others answer the second with the number.
const (
	requestAttempt = "attempt"
	requestEcho    = "echo"
)

// datagramHead returns a lane's request without the attempt's number: "attempt 1/", followed by "42".
func datagramHead(l Lane) []byte {
	word := requestAttempt
	if l.Status != 0 {
		word = requestEcho
	}
	return fmt.Appendf(nil, "%s %d/", word, l.ID)
}

// parseDatagram parses an answer, or a returned request: an optional word, LANE/NUMBER, and optionally the backend:
// pod, node, generation, the client's address and milliseconds since the start of its shutdown, with "-" for unknown
// values. The set of faults is bounded.
func parseDatagram(b []byte, lane uint16) (seq uint64, backend identity, fault string) {
	const unreadable = "not an answer"
	fields := bytes.Fields(b)
	if len(fields) > 0 && (string(fields[0]) == requestAttempt || string(fields[0]) == requestEcho) {
		fields = fields[1:]
	}
	if len(fields) != 1 && len(fields) != 6 {
		return 0, backend, unreadable
	}
	id, digits, _ := bytes.Cut(fields[0], []byte("/"))
	laneID, err1 := strconv.ParseUint(string(id), 10, 16)
	seq, err2 := strconv.ParseUint(string(digits), 10, 64)
	if err1 != nil || err2 != nil {
		return 0, backend, unreadable
	}
	if uint16(laneID) != lane {
		return 0, backend, DetailOtherAttempt
	}
	if len(fields) == 1 {
		return seq, backend, ""
	}
	for i, to := range []*[]byte{&backend.pod, &backend.node, &backend.generation, &backend.client} {
		if word := fields[1+i]; string(word) != "-" {
			*to = word
		}
	}
	ms, ok := parseDecimal(fields[5])
	if !ok {
		return 0, backend, unreadable
	}
	backend.terminating = time.Duration(ms) * time.Millisecond
	if _, _, fault := backend.validated(); fault != "" {
		return 0, backend, fault
	}
	return seq, backend, ""
}

package probes

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// udp makes the attempts of udp-fresh and udp-sticky lanes: one datagram with the attempt's number, and an answer that
// repeats it. Nothing is sent twice. An attempt without an answer within the reply deadline is lost (reply-timeout), one
// with an answer in the second half of it is delayed.
//
// An ICMP port unreachable is `rejected`, whoever sends it: for UDP it is also what a host without a listener says.
type udp struct {
	tcp    *tcp // what datagrams share with connections: sockets, sources, names
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
		_, errno = sysTransfer(unix.SYS_WRITE, f.fd, u.requestFor(f))
	}
	if errno != 0 {
		u.fail(f, errno)
		return
	}
	f.lane.waiting.add(f, f.Start+f.lane.ReplyDeadline)
}

// open makes the flight's socket and connects it, so that the kernel reports ICMP errors and keeps strangers away. It
// leaves what it made with the flight also when it fails; ok is false when the flight has ended for want of a five-tuple.
func (u *udp) open(f *flight) (errno unix.Errno, ok bool) {
	if errno, ok = u.tcp.open(f, unix.SOCK_DGRAM); !ok {
		return 0, false
	}
	if errno == 0 {
		errno = u.tcp.sockets.dropReplies(f)
	}
	if errno == 0 {
		errno = u.tcp.sockets.connect(f.fd, f.lane.Target)
	}
	if errno == 0 {
		u.tcp.learnSource(f)
	}
	return errno, true
}

// request is an attempt's datagram; it stays valid until the next one.
func (u *udp) requestFor(f *flight) []byte {
	u.tcp.request = strconv.AppendUint(append(u.tcp.request[:0], f.lane.request...), f.Seq, 10)
	return u.tcp.request
}

// ready reads the answer, or why there will be none.
func (u *udp) ready(f *flight, _ uint32) {
	n, errno := sysTransfer(unix.SYS_READ, f.fd, u.buffer[:])
	switch {
	case errno == unix.EAGAIN:
		return
	case errno != 0:
		u.fail(f, errno)
		return
	}
	seq, who, fault := parseDatagram(u.buffer[:n], f.lane.ID)
	if fault == "" && seq != f.Seq {
		fault = DetailOtherAttempt
	}
	class, detail := u.classify(f, who, fault)
	u.end(f, class, detail)
}

// judge names an attempt by its answer.
func (u *udp) classify(f *flight, who identity, fault string) (record.Class, string) {
	if fault != "" {
		return record.Misrouted, fault
	}
	u.tcp.identify(f, who)
	return classifyAnswer(&f.Attempt, &f.lane.Lane, u.tcp.engine.host.now()-f.Start)
}

// fail ends an attempt whose socket reports an error: an ICMP error that somebody sent, or the probe's own fault.
func (u *udp) fail(f *flight, errno unix.Errno) {
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
		sysClose(fd)
	}
}

// expire ends an attempt that was not answered in time.
func (u *udp) expire(f *flight) { u.end(f, record.ReplyTimeout, "") }

// cancel closes the socket of an attempt that has its own.
func (u *udp) cancel(f *flight) {
	if f.fd >= 0 {
		sysClose(f.fd)
	}
}

// leave closes the socket of a sticky lane.
func (u *udp) closeLane(n *lane) {
	if s := u.sticky[n]; s != nil && s.fd >= 0 {
		sysClose(s.fd)
	}
	delete(u.sticky, n)
}

// stickySocket is the one socket of a udp-sticky lane. It stays the same whatever happens on it: a client that keeps its
// five-tuple is what finds conntrack entries that point to a pod that is gone.
type stickySocket struct {
	udp      *udp
	lane     *lane
	token    int32
	fd       int // -1 while there is none
	source   netip.AddrPort
	lastSent time.Duration // when it last sent
	// The numbers that were answered last, each plus one, in its place modulo the size: they tell a second answer from
	// one that came too late.
	answered      [1024]uint64
	pendingDetail string // what no attempt of its own can tell: the next good one does
	pendingFault  string // an answer that nobody asked for: the next attempt is charged with it
}

// stick sends the attempt's datagram on the lane's socket.
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
		stray := s.pendingFault
		s.pendingFault = ""
		u.tcp.engine.finish(f, record.Misrouted, stray)
		return
	}
	f.lane.waiting.add(f, f.Start+f.lane.ReplyDeadline)
	_, errno := sysTransfer(unix.SYS_WRITE, s.fd, u.requestFor(f))
	if errno != 0 && s.readErrors() > 0 && f.lane != nil {
		// The error was about an earlier datagram, and nothing has been sent (udp_sendmsg() looks at sk_err first).
		_, errno = sysTransfer(unix.SYS_WRITE, s.fd, u.requestFor(f))
	}
	if errno != 0 && f.lane != nil {
		s.fail(f, errno)
	}
}

// open makes the socket with the flight's five-tuple; when it cannot, it ends the flight and returns false.
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
	f.fd = -1 // the lane's, not the attempt's
	return true
}

// ready reads all answers and errors that have come.
func (s *stickySocket) ready(_ int32, _ uint32) {
	for s.fd >= 0 {
		n, errno := sysTransfer(unix.SYS_READ, s.fd, s.udp.buffer[:])
		switch {
		case errno == unix.EAGAIN:
			s.readErrors()
			return
		case errno != 0:
			s.readErrors() // the read has taken the socket's own note of them
		default:
			s.receive(s.udp.buffer[:n])
		}
	}
}

// receive matches an answer with its attempt.
func (s *stickySocket) receive(answer []byte) {
	seq, who, fault := parseDatagram(answer, s.lane.ID)
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
	class, detail := s.udp.classify(f, who, "")
	if detail == "" {
		detail, s.pendingDetail = s.pendingDetail, ""
	}
	s.udp.tcp.engine.finish(f, class, detail)
}

// charge gives a wrong answer to the attempt that has waited longest, or else to the next one.
func (s *stickySocket) assignFault(fault string) {
	if f := s.lane.waiting.first; f != nil {
		s.udp.tcp.engine.finish(f, record.Misrouted, fault)
		return
	}
	s.pendingFault = fault
}

// find returns the attempt of that number if it still waits.
func (s *stickySocket) waiting(seq uint64) *flight {
	for f := s.lane.waiting.last; f != nil; f = f.prev {
		if f.Seq == seq {
			return f
		}
	}
	return nil
}

// errors takes the ICMP errors that are queued, gives each to the attempt whose datagram it brings back, and returns how
// many there were.
func (s *stickySocket) readErrors() int {
	for taken := 0; ; taken++ {
		payload, queued, more := s.udp.tcp.sockets.nextError(s.fd, s.udp.buffer[:])
		if !more {
			return taken
		}
		f := s.lane.waiting.first
		if seq, _, fault := parseDatagram(payload, s.lane.ID); fault == "" {
			f = s.waiting(seq)
		}
		if f == nil { // its attempt is over, by its deadline
			continue
		}
		f.Offender = queued.offender
		class, detail := classifyDial(queued.errno, queued)
		s.udp.tcp.engine.finish(f, class, detail)
	}
}

// fail ends an attempt that could not be sent for a reason of this machine's own.
func (s *stickySocket) fail(f *flight, errno unix.Errno) {
	class, detail := classifyDial(errno, icmp{})
	s.udp.tcp.engine.finish(f, class, detail)
}

// The words that begin a request in a datagram. A backend of the lab answers the first with the attempt's number and its
// identity; agnhost netexec and others answer the second with the number.
const (
	requestAttempt = "attempt"
	requestEcho    = "echo"
)

// datagramHead is a lane's request without the attempt's number: "attempt 1/", and then "42".
func datagramHead(l Lane) []byte {
	word := requestAttempt
	if l.Status != 0 {
		word = requestEcho
	}
	return fmt.Appendf(nil, "%s %d/", word, l.ID)
}

// parseDatagram reads an answer, or a request that came back: an optional word, LANE/NUMBER, and optionally who answers:
// pod, node, generation and the milliseconds since it began to shut down, with "-" for what it does not know.
// The fault is of a bounded vocabulary.
func parseDatagram(b []byte, lane uint16) (seq uint64, who identity, fault string) {
	const unreadable = "not an answer"
	fields := bytes.Fields(b)
	if len(fields) > 0 && (string(fields[0]) == requestAttempt || string(fields[0]) == requestEcho) {
		fields = fields[1:]
	}
	if len(fields) != 1 && len(fields) != 5 {
		return 0, who, unreadable
	}
	id, digits, _ := bytes.Cut(fields[0], []byte("/"))
	laneID, err1 := strconv.ParseUint(string(id), 10, 16)
	seq, err2 := strconv.ParseUint(string(digits), 10, 64)
	if err1 != nil || err2 != nil {
		return 0, who, unreadable
	}
	if uint16(laneID) != lane {
		return 0, who, DetailOtherAttempt
	}
	if len(fields) == 1 {
		return seq, who, ""
	}
	for i, to := range []*[]byte{&who.pod, &who.node, &who.generation} {
		if word := fields[1+i]; string(word) != "-" {
			*to = word
		}
	}
	ms, ok := parseDecimal(fields[4])
	if !ok {
		return 0, who, unreadable
	}
	who.terminating = time.Duration(ms) * time.Millisecond
	if _, _, fault := who.validated(); fault != "" {
		return 0, who, fault
	}
	return seq, who, ""
}

package probes

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// Details that the engine itself gives to attempts. Others are errno names ("ECONNRESET"), ICMP codes ("icmp 3/3") and
// the faults of parseReply.
const (
	DetailInFlight     = "in-flight cap reached"
	DetailLate         = "not started: too late"
	DetailNoTuple      = "no fresh five-tuple"
	DetailCancelled    = "run ended"
	DetailBackend      = "backend not allowed"
	DetailNoIdentity   = "no identity in the answer"
	DetailSlow         = "answer after the threshold"
	DetailRemembered   = "server remembered an earlier connection" // of the same five-tuple, see synLost; the attempt is ok
	DetailEnd          = "end of stream"
	DetailFull         = "requests not taken any more"
	DetailRetried      = "a client would have sent it again in silence" // http-reuse: the idle connection had failed
	DetailOtherAttempt = "answer to another attempt"
	DetailDuplicate    = "after a second answer to an earlier attempt" // udp-sticky; the attempt itself is ok
	DetailTooLate      = "after an answer to an earlier attempt that was given up"
)

// icmp is an ICMP error that the kernel queued for a socket (struct sock_extended_err, include/uapi/linux/errqueue.h).
type icmp struct {
	errno     unix.Errno
	origin    uint8 // unix.SO_EE_ORIGIN_ICMP or unix.SO_EE_ORIGIN_ICMP6; other values mean no ICMP error
	typ, code uint8 // ICMP type and code
	offender  netip.Addr
}

func (e icmp) present() bool {
	return e.origin == unix.SO_EE_ORIGIN_ICMP || e.origin == unix.SO_EE_ORIGIN_ICMP6
}

// ofRule reports whether the error is one that only a rule sends: port unreachable, the default of `reject` in iptables and
// nftables, or a prohibition, the default of firewalld (RFC 792, 1812 and 4443).
func (e icmp) ofRule() bool {
	if e.origin == unix.SO_EE_ORIGIN_ICMP6 {
		return e.typ == 1 && (e.code == 4 || e.code == 1 || e.code == 5) // 1: prohibited; 5: by the policy for sources
	}
	return e.origin == unix.SO_EE_ORIGIN_ICMP && e.typ == 3 && (e.code == 3 || e.code == 9 || e.code == 10 || e.code == 13) // 9, 10, 13: network, host, all prohibited
}

func (e icmp) String() string {
	if e.origin == unix.SO_EE_ORIGIN_ICMP6 {
		return fmt.Sprintf("icmp6 %d/%d", e.typ, e.code)
	}
	return fmt.Sprintf("icmp %d/%d", e.typ, e.code)
}

// parseError parses the control message of an error queue: the error, then the offender's socket address
// (SO_EE_OFFENDER, ip(7)). Short or unknown data give an error without origin.
func parseError(data []byte) icmp {
	const size = 16 // of struct sock_extended_err
	if len(data) < size {
		return icmp{}
	}
	e := icmp{errno: unix.Errno(binary.NativeEndian.Uint32(data)), origin: data[4], typ: data[5], code: data[6]}
	address := data[size:]
	if len(address) < 2 {
		return e
	}
	switch family := binary.NativeEndian.Uint16(address); {
	case family == unix.AF_INET && len(address) >= unix.SizeofSockaddrInet4:
		e.offender, _ = netip.AddrFromSlice(address[4:8])
	case family == unix.AF_INET6 && len(address) >= unix.SizeofSockaddrInet6:
		e.offender, _ = netip.AddrFromSlice(address[8:24])
	}
	return e
}

// classifyDial classifies a connection that was not established: by the ICMP error if there is one, else by the errno.
// A REJECT rule and a host without listener give the same errno; only the error queue tells them apart. Errors without
// a packet from the network are the probe's own (no port, no descriptor, no route).
func classifyDial(errno unix.Errno, queued icmp) (record.Class, string) {
	switch {
	case queued.ofRule():
		return record.Rejected, queued.String()
	case queued.present():
		return record.Unreachable, queued.String()
	}
	switch errno {
	case unix.ECONNREFUSED:
		return record.Refused, ""
	case unix.ETIMEDOUT: // the kernel gave up on its SYNs before the deadline did
		return record.ConnectTimeout, unix.ErrnoName(errno)
	case unix.ECONNRESET, unix.EPIPE: // tcp_reset() gives these only beyond SYN_SENT: the connection was established
		return classifyStream(errno)
	}
	return record.Probe, errnoName(errno)
}

// classifyStream classifies an established connection that failed before its answer was complete.
func classifyStream(errno unix.Errno) (record.Class, string) {
	switch errno {
	case unix.EPIPE: // a FIN, then a RST (tcp_reset() in CLOSE_WAIT)
		return record.Closed, unix.ErrnoName(errno)
	case unix.ETIMEDOUT:
		return record.ReplyTimeout, unix.ErrnoName(errno)
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ECONNREFUSED:
		return record.Unreachable, unix.ErrnoName(errno)
	case unix.ENOBUFS, unix.ENOMEM:
		return record.Probe, unix.ErrnoName(errno)
	}
	return record.Reset, errnoName(errno)
}

func errnoName(errno unix.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return "unknown errno"
}

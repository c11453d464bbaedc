package probes

import (
	"fmt"
	"net/netip"
	"syscall"

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

// Origins of errors (SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6 in include/uapi/linux/errqueue.h).
const (
	originICMP   = 2
	originICMP6  = 3
	originUnseen = 255 // of an error from the network on a system that does not show the ICMP error
)

// icmp is an ICMP error that the kernel queued for a socket (struct sock_extended_err, include/uapi/linux/errqueue.h).
type icmp struct {
	errno     syscall.Errno
	origin    uint8 // originICMP or originICMP6; other values mean no ICMP error
	typ, code uint8 // ICMP type and code
	offender  netip.Addr
}

func (e icmp) present() bool {
	return e.origin == originICMP || e.origin == originICMP6
}

// ofRule reports whether the error is one that only a rule sends: port unreachable, the default of `reject` in iptables and
// nftables, or a prohibition, the default of firewalld (RFC 792, 1812 and 4443).
func (e icmp) ofRule() bool {
	if e.origin == originICMP6 {
		return e.typ == 1 && (e.code == 4 || e.code == 1 || e.code == 5) // 1: prohibited; 5: by the policy for sources
	}
	return e.origin == originICMP && e.typ == 3 && (e.code == 3 || e.code == 9 || e.code == 10 || e.code == 13) // 9, 10, 13: network, host, all prohibited
}

func (e icmp) String() string {
	if e.origin == originICMP6 {
		return fmt.Sprintf("icmp6 %d/%d", e.typ, e.code)
	}
	return fmt.Sprintf("icmp %d/%d", e.typ, e.code)
}

// classifyDial classifies a connection that was not established: by the ICMP error if there is one, else by the errno.
// A REJECT rule and a host without listener give the same errno; only the error queue tells them apart. Errors without
// a packet from the network are the probe's own (no port, no descriptor, no route).
func classifyDial(errno syscall.Errno, queued icmp) (record.Class, string) {
	switch {
	case queued.ofRule():
		return record.Rejected, queued.String()
	case queued.present():
		return record.Unreachable, queued.String()
	case queued.origin == originUnseen:
		return record.Unreachable, errnoName(errno)
	}
	switch errno {
	case syscall.ECONNREFUSED:
		return record.Refused, ""
	case syscall.ETIMEDOUT: // the kernel gave up on its SYNs before the deadline did
		return record.ConnectTimeout, errnoName(errno)
	case syscall.ECONNRESET, syscall.EPIPE: // tcp_reset() gives these only beyond SYN_SENT: the connection was established
		return classifyStream(errno)
	}
	return record.Probe, errnoName(errno)
}

// classifyStream classifies an established connection that failed before its answer was complete.
func classifyStream(errno syscall.Errno) (record.Class, string) {
	switch errno {
	case syscall.EPIPE: // a FIN, then a RST (tcp_reset() in CLOSE_WAIT)
		return record.Closed, errnoName(errno)
	case syscall.ETIMEDOUT:
		return record.ReplyTimeout, errnoName(errno)
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNREFUSED:
		return record.Unreachable, errnoName(errno)
	case syscall.ENOBUFS, syscall.ENOMEM:
		return record.Probe, errnoName(errno)
	}
	return record.Reset, errnoName(errno)
}

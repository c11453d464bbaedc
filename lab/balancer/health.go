package balancer

import (
	"errors"
	"math/bits"
	"net"
	"os"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// health is the state of one node for one service, as the check results make it: fall failures in a row take it down,
// rise passes in a row bring it up.
type health struct {
	up     bool
	passed bool // the last result
	streak int  // how many results in a row were like the last one; 0 before the first
}

// observe takes one result. turned: it is another one than the last (or the first); flipped: the node goes up or down.
func (h *health) observe(pass bool, fall, rise int) (turned, flipped bool) {
	turned = h.count(pass)
	switch {
	case !h.up && pass && h.streak >= rise, h.up && !pass && h.streak >= fall:
		h.up, flipped = pass, true
	}
	return turned, flipped
}

// count takes one result into the streak and reports whether it is another one than the last.
func (h *health) count(pass bool) (turned bool) {
	if turned = h.streak == 0 || pass != h.passed; turned {
		h.streak = 0
	}
	h.passed = pass
	h.streak++
	return turned
}

// question is what a health check asks of a node.
type question struct {
	target string // healthz, healthCheckNodePort or nodePort
	port   int
	path   string // empty: a connection that opens is enough
}

// questionFor says how the health of nodes is asked for a service.
func questionFor(svc *corev1.Service, wish string, healthzPort int) question {
	local := svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if wish == TargetAuto && local {
		wish = TargetHealthCheckNodePort
	}
	if port := int(svc.Spec.HealthCheckNodePort); wish == TargetHealthCheckNodePort && port != 0 {
		return question{target: TargetHealthCheckNodePort, port: port, path: "/"}
	}
	if wish == TargetNodePort {
		for _, p := range svc.Spec.Ports {
			if protocolOf(p) == corev1.ProtocolTCP && p.NodePort != 0 {
				return question{target: TargetNodePort, port: int(p.NodePort)}
			}
		}
	}
	return question{target: TargetHealthz, port: healthzPort, path: "/healthz"}
}

// phase is where in the interval a node is checked: the bits of its number read backwards as a binary fraction (van der
// Corput's sequence: node 1 at one half, 2 at one quarter, 3 at three quarters, …). Nodes are spread evenly whatever
// their number, a node keeps its phase when others come and go, and all services ask a node at one instant, which
// saves wake-ups.
func phase(number int, interval time.Duration) time.Duration {
	fraction := uint64(bits.Reverse32(uint32(number)))
	high, low := bits.Mul64(fraction, uint64(interval))
	return time.Duration(high<<32 | low>>32)
}

// after is the first instant later than now that lies at the phase of a grid of intervals from the start of the run.
func after(now, phase, interval time.Duration) time.Duration {
	k := (now - phase) / interval
	at := phase + k*interval
	for at <= now {
		at += interval
	}
	return at
}

// answer is the outcome of one check.
type answer struct {
	at     time.Duration
	pass   bool
	status string // HTTP status code, connected, or one of the words of statusOf
}

// statusOf is the word for what kept a check from getting an answer.
func statusOf(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	default:
		return "broken"
	}
}

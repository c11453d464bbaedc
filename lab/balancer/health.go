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

// health is the state of one node for one service: fall consecutive failures take it down, rise consecutive passes
// bring it up.
type health struct {
	up     bool
	passed bool // the last result
	streak int  // number of consecutive results equal to the last one; 0 before the first
}

// observe adds a result. resultChanged: the result differs from the last one, or is the first. stateChanged: the node
// goes up or down.
func (h *health) observe(pass bool, fall, rise int) (resultChanged, stateChanged bool) {
	resultChanged = h.count(pass)
	switch {
	case !h.up && pass && h.streak >= rise, h.up && !pass && h.streak >= fall:
		h.up, stateChanged = pass, true
	}
	return resultChanged, stateChanged
}

// count adds a result to the streak and reports whether it differs from the last one.
func (h *health) count(pass bool) (resultChanged bool) {
	if resultChanged = h.streak == 0 || pass != h.passed; resultChanged {
		h.streak = 0
	}
	h.passed = pass
	h.streak++
	return resultChanged
}

// checkSpec is the request of a health check.
type checkSpec struct {
	target string // healthz, healthCheckNodePort or nodePort
	port   int
	path   string // empty: an opened connection passes
}

// checkSpecFor returns the health check for a Service.
func checkSpecFor(svc *corev1.Service, requested string, healthzPort int) checkSpec {
	local := svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if requested == TargetAuto && local {
		requested = TargetHealthCheckNodePort
	}
	if port := int(svc.Spec.HealthCheckNodePort); requested == TargetHealthCheckNodePort && port != 0 {
		return checkSpec{target: TargetHealthCheckNodePort, port: port, path: "/"}
	}
	if requested == TargetNodePort {
		for _, p := range svc.Spec.Ports {
			if protocolOf(p) == corev1.ProtocolTCP && p.NodePort != 0 {
				return checkSpec{target: TargetNodePort, port: int(p.NodePort)}
			}
		}
	}
	return checkSpec{target: TargetHealthz, port: healthzPort, path: "/healthz"}
}

// phase is the offset of a node's checks in the interval: van der Corput's sequence of its number (1/2, 1/4, 3/4, …).
// Nodes are spread evenly for any number of nodes, and a node keeps its phase when others join or leave. Services share
// the phase, which saves wake-ups.
func phase(number int, interval time.Duration) time.Duration {
	fraction := uint64(bits.Reverse32(uint32(number)))
	high, low := bits.Mul64(fraction, uint64(interval))
	return time.Duration(high<<32 | low>>32)
}

// after returns the first time later than now that is phase plus a multiple of interval.
func after(now, phase, interval time.Duration) time.Duration {
	k := (now - phase) / interval
	at := phase + k*interval
	for at <= now {
		at += interval
	}
	return at
}

// checkResult is the result of one health check.
type checkResult struct {
	at     time.Duration
	pass   bool
	status string // HTTP status code, connected, or one of the words of statusOf
}

// statusOf returns the status for the error of a health check.
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

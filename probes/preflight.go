package probes

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Lifetimes of conntrack entries of closed connections and of UDP flows (kernel defaults, sysctls
// net.netfilter.nf_conntrack_tcp_* and _udp_timeout).
const (
	conntrackTimeWait = 120 * time.Second
	conntrackClose    = 10 * time.Second
	conntrackUDP      = 30 * time.Second
)

// tupleRate returns the number of new five-tuples per second, without failures.
func (l Lane) tupleRate() float64 {
	if l.opensSockets() {
		return l.Rate
	}
	return 0 // a few in total
}

// tuplesWithin is the number of five-tuples that the lane uses in a time, without failures.
func (l Lane) tuplesWithin(d time.Duration) float64 {
	if l.Lasts > 0 {
		d = min(d, l.Lasts)
	}
	return l.tupleRate() * d.Seconds()
}

// Limits are the limits of a probe worker and its path. A limit of 0 is unknown and not checked.
type Limits struct {
	// ConntrackMax is the smallest nf_conntrack_max of all network namespaces on the path.
	ConntrackMax int
	// Descriptors is the worker's limit of open files (RLIMIT_NOFILE).
	Descriptors int
}

// LocalLimits returns the limits of this process and its network namespace. The caller lowers ConntrackMax to the
// minimum of all namespaces on the path.
func LocalLimits() (Limits, error) {
	var l Limits
	var err error
	if l.Descriptors, err = openFiles(); err != nil {
		return l, err
	}
	err = readNumbers("/proc/sys/net/netfilter/nf_conntrack_max", &l.ConntrackMax)
	if errors.Is(err, os.ErrNotExist) { // connection tracking is not loaded, or this is not Linux
		err = nil
	}
	return l, err
}

func readNumbers(file string, numbers ...any) error {
	data, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(data), numbers...)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

// Preflight returns a reason for each budget that the lanes would exceed together, so that the probes themselves would
// cause failures. A run with a reason must not start, or is invalid.
func Preflight(lanes []Lane, limits Limits) []string {
	var reasons []string
	for _, check := range []func([]Lane, Limits) string{conntrackReason, descriptorReason} {
		if reason := check(lanes, limits); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return append(reasons, portReasons(lanes)...)
}

// conntrackReason limits the entries of closed connections to half of the table: above that, the kernel begins to drop
// entries early, and the probes would cause the failures that they measure.
func conntrackReason(lanes []Lane, limits Limits) string {
	var entries float64
	for _, l := range lanes {
		l = l.WithDefaults()
		lifetime := conntrackTimeWait
		switch {
		case l.overUDP():
			lifetime = conntrackUDP
		case l.Close == CloseRST:
			lifetime = conntrackClose
		}
		if interval, err := l.reuseInterval(); err == nil && interval > 0 {
			lifetime = min(lifetime, interval) // a five-tuple has one entry
		}
		entries += l.tuplesWithin(lifetime)
	}
	if limits.ConntrackMax == 0 || entries <= float64(limits.ConntrackMax)/2 {
		return ""
	}
	return fmt.Sprintf("conntrack: the lanes keep about %.0f entries, more than half of nf_conntrack_max %d; "+
		"raise it to %.0f, lower the rate, or close with rst (10 s per entry instead of 120 s)",
		entries, limits.ConntrackMax, math.Ceil(2*entries))
}

// descriptorReason compares the number of sockets with a target that never answers with the limit, less a reserve.
func descriptorReason(lanes []Lane, limits Limits) string {
	const reserve = 64
	var sockets float64
	for _, l := range lanes {
		l = l.WithDefaults()
		if l.Fresh != 0 {
			sockets += maxFresh
		}
		if l.Protocol == ProtocolTCPLong {
			sockets += float64(l.Connections)
			continue
		}
		sockets += math.Min(math.Ceil(l.Rate*(l.DialDeadline+l.ReplyDeadline).Seconds())+1, float64(l.InFlight))
	}
	if limits.Descriptors == 0 || sockets+reserve <= float64(limits.Descriptors) {
		return ""
	}
	return fmt.Sprintf("descriptors: a target that never answers holds %.0f sockets, but the limit of open files is %d; "+
		"raise it (ulimit -n), lower the rate or shorten the deadlines", sockets, limits.Descriptors)
}

// portReasons checks that there are enough five-tuples for all lanes with the same source range.
func portReasons(lanes []Lane) []string {
	var reasons []string
	need := map[sourceRange]float64{}
	var order []sourceRange
	within := map[sourceRange][]time.Duration{} // the times for which its lanes do not reuse a five-tuple
	for _, l := range lanes {
		l = l.WithDefaults()
		from := l.sourceRange()
		if _, seen := need[from]; !seen {
			order = append(order, from)
		}
		reuseAfter := FreshFor
		if interval, err := l.reuseInterval(); err == nil && interval > 0 {
			reuseAfter = interval
		}
		if !slices.Contains(within[from], reuseAfter) {
			within[from] = append(within[from], reuseAfter)
		}
		need[from] += l.drawsPerAttempt() * l.tuplesWithin(reuseAfter)
	}
	for _, from := range order {
		have := newWalk(from.prefix, 0).length()
		if need[from] <= float64(have) {
			continue
		}
		where, remedy := fmt.Sprintf("source prefix %s", from.prefix), "use a wider prefix"
		if from.shared() {
			where, remedy = "a client without a source prefix", "set one"
		}
		reasons = append(reasons, fmt.Sprintf("ports: %s has %d five-tuples, the lanes use %.0f within %s; %s or lower the rate",
			where, have, need[from], strings.Trim(fmt.Sprint(within[from]), "[]"), remedy))
	}
	return reasons
}

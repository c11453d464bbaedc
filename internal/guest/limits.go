package guest

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// The budgets of a lab in a kernel of its own. A kernel that boots gives its first process 4096 descriptors and, in
// 2 GB, a table of 65,536 conntrack entries: a silent Service would take the first at 500 attempts a second, and
// connections in TIME_WAIT half of the second at 270. These are enough for two lanes of 5000 a second.
const (
	descriptors  = 1 << 17
	conntrackMax = "4194304"
)

// raiseLimits gives the lab room in a kernel that is all its own.
func raiseLimits() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: descriptors, Max: descriptors}); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_max", []byte(conntrackMax), 0)
}

// The buckets of the table of connections. The kernel's janitor goes through all of them at least once a minute, as do those who
// list the connections, and whatever takes a namespace away: with one connection in ten seconds that is an eighth of what an idle
// guest does.
const (
	fewestBuckets = 1 << 10
	stockBuckets  = 1 << 16 // as a kernel with 2 GB and more has them by itself
)

// connectionLives is how long the kernel keeps a connection that has ended (nf_conntrack_tcp_timeout_time_wait).
const connectionLives = 2 * time.Minute

// bucketsFor is how many buckets connections at that rate need, each of which stands twice in each of up to 5 namespaces on its
// way: a power of two, and as many as the connections, or the kernel's own number.
func bucketsFor(perSecond float64) int {
	entries := perSecond * connectionLives.Seconds() * 2 * 5
	buckets := fewestBuckets
	for float64(buckets) < entries && buckets < stockBuckets {
		buckets *= 2
	}
	return buckets
}

// fitConntrack gives the kernel's table of connections the room that connections at that rate need. It is for a kernel that is all ours.
func fitConntrack(perSecond float64) error {
	buckets := bucketsFor(perSecond)
	if buckets >= stockBuckets {
		return nil
	}
	if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_buckets", []byte(strconv.Itoa(buckets)), 0); err != nil {
		return fmt.Errorf("giving the table of connections %d buckets: %w", buckets, err)
	}
	return nil
}

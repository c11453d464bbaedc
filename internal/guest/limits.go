//go:build linux

package guest

import (
	"errors"
	"os"
	"syscall"
)

// The limits of a lab in its own kernel, which are enough for two lanes of 5000 attempts per second. The defaults are 4096 descriptors,
// which a silent Service exhausts at 500 attempts per second, and 65,536 conntrack entries, which TIME_WAIT fills by half at 270.
//
// All links of a lab share the backlog of one CPU. Keepalives of 500 idle connections, at both ends at once, exceed its default of 1000
// packets.
const (
	descriptors  = 1 << 17
	conntrackMax = "4194304"
	backlog      = "100000"
)

// raiseLimits sets the limits of a guest's own kernel.
func raiseLimits() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: descriptors, Max: descriptors}); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_max", []byte(conntrackMax), 0),
		os.WriteFile("/proc/sys/net/core/netdev_max_backlog", []byte(backlog), 0))
}

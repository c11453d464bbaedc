package guest

import (
	"os"
	"syscall"
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

package early

import "golang.org/x/sys/unix"

// waitForSleepers makes a backend that wakes up wait until the running program sleeps, or has used its time slice (SCHED_BATCH, sched(7)).
// On the only CPU of the guest it would else interrupt the client between connection and request, and wait for the request again.
func waitForSleepers() {
	batch := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}
	_ = unix.SchedSetAttr(0, &batch, 0) // the threads of the runtime inherit it; without it a backend costs more
}

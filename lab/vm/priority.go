package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orderThreads lets QEMU's main loop always come before its CPU thread, on the one CPU that they share. When the guest
// goes idle, the main loop skips time to the next timer; if it still has something to do while the guest runs on, it can
// get the CPU between the guest's next halt and the moment when the instructions before it are accounted for, skips too
// far, and the run differs from others by microseconds. A main loop that comes first has always finished, and sleeps,
// before the guest runs.
//
// The main loop gets the lowest real-time priority where that is allowed (sched(7)); it sleeps nearly always, so it
// starves nobody. The CPU thread never does: it would starve the main loop. Elsewhere the CPU thread steps back instead.
// What cannot be set is not an error: the run's hash tells whether it repeats.
func orderThreads(pid int) {
	set := func(tid int, policy uint32, nice int32, priority uint32) error {
		return unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Nice: nice, Priority: priority,
			Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
	}
	// The CPU thread comes up within the first instants; nothing tells when.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		tid, ok := cpuThread(pid)
		if !ok {
			continue
		}
		if set(pid, unix.SCHED_FIFO, 0, 1) != nil || set(tid, unix.SCHED_BATCH, -10, 0) != nil {
			_ = set(tid, unix.SCHED_BATCH, 5, 0)
		}
		return
	}
}

// cpuThread is the thread that runs the guest's instructions, by the name that QEMU gives it.
func cpuThread(pid int) (int, bool) {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(comm), "CPU 0/") || strings.HasPrefix(string(comm), "ALL CPUs/") {
			tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return tid, err == nil
		}
	}
	return 0, false
}

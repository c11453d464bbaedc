//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// housekeeping are settings of periodic work of the kernel that does not affect the network and that a guest for one run does not need.
// Each item causes a wake-up per second or more, and wake-ups dominate the wall time of a run in virtual time.
var housekeeping = []struct{ file, value string }{
	{"/proc/sys/vm/compaction_proactiveness", "0"},                                      // kcompactd, twice a second
	{"/proc/sys/vm/stat_interval", "86400"},                                             // folding of page counters, each second
	{"/proc/sys/kernel/hung_task_timeout_secs", "0"},                                    // khungtaskd
	{"/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "86400000"}, // khugepaged, each ten seconds
}

// stopHousekeeping disables the housekeeping in a guest's own kernel. Missing settings are ignored.
func stopHousekeeping() error {
	for _, h := range housekeeping {
		if err := os.WriteFile(h.file, []byte(h.value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("disabling the kernel's housekeeping: %w", err)
		}
	}
	return nil
}

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// housekeeping is what a kernel does again and again for machines that run for months: none of it touches the network,
// and a guest that lives for one run needs none of it. Each item costs a wake-up every second or more, and in virtual
// time wake-ups are what a run's wall time is made of.
var housekeeping = []struct{ file, value string }{
	{"/proc/sys/vm/compaction_proactiveness", "0"},                                      // kcompactd, twice a second
	{"/proc/sys/vm/stat_interval", "86400"},                                             // folding of page counters, each second
	{"/proc/sys/kernel/hung_task_timeout_secs", "0"},                                    // khungtaskd
	{"/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "86400000"}, // khugepaged, each ten seconds
}

// quietKernel ends the housekeeping of a kernel that is all ours. A kernel without one of the settings has nothing to end.
func quietKernel() error {
	for _, h := range housekeeping {
		if err := os.WriteFile(h.file, []byte(h.value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ending the kernel's housekeeping: %w", err)
		}
	}
	return nil
}

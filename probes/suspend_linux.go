package probes

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Suspended returns how long this machine was suspended since it booted: CLOCK_BOOTTIME goes on meanwhile, and CLOCK_MONOTONIC, which times all
// attempts, stands still. A VM that its hypervisor pauses cannot see that.
func Suspended() (time.Duration, error) {
	var mono, boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		return 0, fmt.Errorf("reading the monotonic clock: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return 0, fmt.Errorf("reading the clock since the boot: %w", err)
	}
	return time.Duration(boot.Nano() - mono.Nano()), nil
}

package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/observers"
)

// observer waits for the kernel to have something. On a machine with one CPU all that it does is taken from the subject, so
// that it looks seldom in relation to the time that has passed, and looks at each virtual server until it is there once.
type observer struct {
	now   func() time.Duration
	alive func() error
	cpu   time.Duration // that it took
}

// How often the observer looks.
const (
	shortest = 200 * time.Microsecond
	share    = 200 // of the time that has passed
	longest  = 50 * time.Millisecond
)

// wait returns the time from begin until all virtual servers were there.
func (o *observer) wait(ctx context.Context, begin time.Duration, probe observers.ServiceProbe, all []*virtual) (time.Duration, error) {
	// A thread of its own, since the runtime's timers are as coarse as a millisecond.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("asking for exact timers: %w", err)
	}
	start := threadCPU()
	defer func() { o.cpu = threadCPU() - start }()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		changed, err := probe.Changed()
		seen := o.now()
		for err == nil && changed && len(all) > 0 {
			var there bool
			if there, err = probe.Serves(all[0].address(), all[0].backends()); !there {
				break
			}
			all = all[1:]
		}
		if err != nil {
			return 0, fmt.Errorf("looking into the kernel: %w", err)
		}
		if len(all) == 0 {
			// What was there when nothing changed any more was there when the observer began to look.
			if again, err := probe.Changed(); again || err != nil {
				return o.now() - begin, err
			}
			return seen - begin, nil
		}
		passed := seen - begin
		if err := o.alive(); err != nil {
			return 0, err
		}
		if passed > within {
			return 0, fmt.Errorf("%d virtual servers were not in the kernel after %s, %s among them", len(all), within, all[0].addr)
		}
		pause := unix.NsecToTimespec(int64(min(max(shortest, passed/share), longest)))
		_ = unix.Nanosleep(&pause, nil) // one that a signal ends early is no harm
	}
}

func threadCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

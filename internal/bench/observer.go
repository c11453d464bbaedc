//go:build linux

package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/observers"
)

// observer waits until the kernel serves Services. It shares a single CPU with the subject: it polls at intervals that grow with
// the elapsed time, and checks each Service until it is served once.
type observer struct {
	now   func() time.Duration
	alive func() error
	cpu   time.Duration // used by the last wait
}

// The polling interval is 1/intervalShare of the elapsed time, within its bounds.
const (
	minInterval   = 200 * time.Microsecond
	intervalShare = 200
	maxInterval   = 50 * time.Millisecond
)

// wait returns the time from begin until all Services were served.
func (o *observer) wait(ctx context.Context, begin time.Duration, probe observers.ServiceProbe, all []*service) (time.Duration, error) {
	// The runtime's timers have a resolution of a millisecond; a locked thread can sleep precisely.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("setting the timer slack: %w", err)
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
			var served bool
			if served, err = probe.Serves(all[0].address(), all[0].backends()); !served {
				break
			}
			all = all[1:]
		}
		if err != nil {
			return 0, fmt.Errorf("reading the kernel state: %w", err)
		}
		if len(all) == 0 {
			// Without a change since, the Services were served when this check began.
			if again, err := probe.Changed(); again || err != nil {
				return o.now() - begin, err
			}
			return seen - begin, nil
		}
		passed := seen - begin
		if err := o.alive(); err != nil {
			return 0, err
		}
		if passed > timeout {
			return 0, fmt.Errorf("%d Services were not in the kernel after %s, %s among them", len(all), timeout, all[0].addr)
		}
		pause := unix.NsecToTimespec(int64(min(max(minInterval, passed/intervalShare), maxInterval)))
		_ = unix.Nanosleep(&pause, nil) // a signal may end it early
	}
}

func threadCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package topology

import "time"

// Rhythm lets namespaces come to be at one phase of a period, because the kernel does for each of them something every
// second, counted from its birth: IPVS looks after its defences in each namespace, whether it is used there or not
// (defense_work_handler in net/netfilter/ipvs/ip_vs_ctl.c). Namespaces of different phases wake an idle kernel once a
// second each, those of one phase once together.
type Rhythm struct {
	// Now is the kernel's monotonic clock, whose zero is near that of its ticks.
	Now func() time.Duration
	// Sleep lets time pass.
	Sleep func(time.Duration)
}

const (
	// period is what a timer of one second really takes with 250 ticks a second, and with 1000: the kernel's timer wheel
	// rounds it up to 256 of the one and 1024 of the other (kernel/time/timer.c, "timer wheel has no exact expiry").
	period = 1024 * time.Millisecond
	// Whatever comes within one step of the wheel is rounded to the same end. The step of 32 ms begins here with the
	// kernel that was tried, and what begins within the window has ended before the step does; with another kernel namespaces may
	// have two phases instead of one.
	windowBegin = 16 * time.Millisecond
	windowEnd   = 28 * time.Millisecond
)

// Await returns within the window of a period: at once, or after the rest of the period. A nil Rhythm never waits.
func (r *Rhythm) Await() {
	if r == nil {
		return
	}
	if wait := untilWindow(r.Now()); wait > 0 {
		r.Sleep(wait)
	}
}

// Next returns when the next window begins. What is begun then has the whole window, however long what was before it took.
func (r *Rhythm) Next() { r.Sleep(period - (r.Now()+period-windowBegin)%period) }

func untilWindow(now time.Duration) time.Duration {
	switch phase := now % period; {
	case phase < windowBegin:
		return windowBegin - phase
	case phase < windowEnd:
		return 0
	default:
		return period + windowBegin - phase
	}
}

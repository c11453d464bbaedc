package topology

import "time"

// Rhythm lets namespaces come to be at one phase of a period, because the kernel does for each of them something every
// second, counted from its birth: IPVS looks after its defences in each namespace, whether it is used there or not
// (defense_work_handler in net/netfilter/ipvs/ip_vs_ctl.c). Namespaces of different phases wake an idle kernel once a
// second each, those of one phase once together.
type Rhythm struct {
	// Wheel is the kernel's count of ticks (jiffies) as a time, whose steps are those of the kernel's timers.
	Wheel func() time.Duration
	// Sleep lets time pass.
	Sleep func(time.Duration)
}

const (
	// period is what a timer of one second really takes with 250 ticks a second: the kernel's timer wheel rounds it up to 256
	// of them (kernel/time/timer.c, "timer wheel has no exact expiry").
	period = 1024 * time.Millisecond
	// Whatever comes within one step of the wheel, 8 ticks, is rounded to the same end: a timer that is set at tick j runs out at
	// 8*floor((j+250+8)/8) (calc_index), so a step begins at each j with j+258 divisible by 8. The window is the first part of one,
	// and what begins within it has ended before the step does. Kernels with another number of ticks a second may have two phases.
	windowBegin = 24 * time.Millisecond
	windowEnd   = 44 * time.Millisecond
)

// Await returns within the window of a period: at once, or after the rest of the period. A nil Rhythm never waits.
func (r *Rhythm) Await() {
	if r == nil {
		return
	}
	if wait := untilWindow(r.Wheel()); wait > 0 {
		r.Sleep(wait)
	}
}

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

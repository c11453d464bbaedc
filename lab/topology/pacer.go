//go:build linux

package topology

import "time"

// Pacer aligns the creation of namespaces to one phase of a period. The kernel runs a timer per network namespace
// every second, counted from its creation: IPVS runs defense_work_handler (net/netfilter/ipvs/ip_vs_ctl.c) whether
// IPVS is used or not. Aligned namespaces wake an idle kernel once a second together instead of once each.
type Pacer struct {
	// Now returns the kernel's monotonic clock, whose zero is near that of its ticks.
	Now func() time.Duration
	// Sleep waits for a duration.
	Sleep func(time.Duration)
}

const (
	// period is the real interval of a timer of one second with 250 or 1000 ticks per second: the timer wheel rounds
	// it up to 256 or 1024 ticks (kernel/time/timer.c, "timer wheel has no exact expiry").
	period = 1024 * time.Millisecond
	// Timers set within one step of the wheel expire together. The window lies within a step of 32 ms of the tested
	// kernel, with time for a creation to finish; another kernel may have two phases instead of one.
	windowBegin = 16 * time.Millisecond
	windowEnd   = 28 * time.Millisecond
)

// Await returns within the window: at once, or in the next period. A nil Pacer never waits.
func (r *Pacer) Await() {
	if r == nil {
		return
	}
	if wait := untilWindow(r.Now()); wait > 0 {
		r.Sleep(wait)
	}
}

// Next waits for the beginning of the next window, so that the caller has the whole window.
func (r *Pacer) Next() { r.Sleep(period - (r.Now()+period-windowBegin)%period) }

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

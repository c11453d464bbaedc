package cluster

import (
	"context"
	"time"

	"github.com/hitless/hitless/internal/clock"
)

// Clock is the clock for waits for a cluster.
type Clock interface {
	Now() time.Time
	// Sleep returns after d, or with the cause of the end of ctx.
	Sleep(ctx context.Context, d time.Duration) error
}

// RealClock is the clock of this machine.
type RealClock struct{}

// Now is the present time with a monotonic part.
func (RealClock) Now() time.Time { return time.Now() }

// Sleep returns after d, or with the cause of the end of ctx.
func (RealClock) Sleep(ctx context.Context, d time.Duration) error { return clock.Sleep(ctx, d) }

// pollInterval is the shortest pause between two polls. Pauses grow to a sixteenth of the time waited.
const pollInterval = 500 * time.Millisecond

// poll calls ask until it returns true, at most for the given time, and reports whether it did. The end of the wait does not cut a
// call short, since that would look like a silent server.
func (c *Cluster) poll(ctx context.Context, most time.Duration, ask func(ctx context.Context) bool) bool {
	for begin := c.clock().Now(); ctx.Err() == nil; {
		if ask(ctx) {
			return true
		}
		waited := c.clock().Now().Sub(begin)
		if waited >= most || c.clock().Sleep(ctx, max(pollInterval, waited/16)) != nil {
			return false
		}
	}
	return false
}

func (c *Cluster) clock() Clock { return c.retrier.clock }

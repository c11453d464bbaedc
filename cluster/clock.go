package cluster

import (
	"context"
	"time"

	"github.com/hitless/hitless/internal/clock"
)

// Clock is the time by which a cluster is waited for.
type Clock interface {
	Now() time.Time
	// Sleep lets time pass; it ends early with the cause of the context's end.
	Sleep(ctx context.Context, d time.Duration) error
}

// Wall is the real clock.
type Wall struct{}

// Now is the time of day, with its monotonic part.
func (Wall) Now() time.Time { return time.Now() }

// Sleep lets time pass.
func (Wall) Sleep(ctx context.Context, d time.Duration) error { return clock.Sleep(ctx, d) }

// askEvery is the least time between two questions about the same thing. What takes minutes is asked for less often.
const askEvery = 500 * time.Millisecond

// until asks until there is an answer, at most for the given time, and reports whether there was one. A question that is asked is
// heard out: one that the end of the wait cuts short would look like a server that is away.
func (c *Cluster) until(ctx context.Context, most time.Duration, ask func(ctx context.Context) bool) bool {
	for begin := c.clock().Now(); ctx.Err() == nil; {
		if ask(ctx) {
			return true
		}
		waited := c.clock().Now().Sub(begin)
		if waited >= most || c.clock().Sleep(ctx, max(askEvery, waited/16)) != nil {
			return false
		}
	}
	return false
}

func (c *Cluster) clock() Clock { return c.patience.clock }

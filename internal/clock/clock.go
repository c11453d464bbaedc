// Package clock lets the kernel's time pass, the real one or a VM's virtual one.
package clock

import (
	"context"
	"time"
)

// Sleep returns when the time is over, at once when it is not above 0; or when the context ends, with its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

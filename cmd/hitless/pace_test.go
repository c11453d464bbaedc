package main

import (
	"testing"
	"time"
)

// Only checkpoints tell the pace, counted from the first line that the guest itself told.
func TestCheckpointsTellThePace(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := pacer{now: func() time.Time { return now }}
	for _, step := range []struct {
		after      time.Duration
		line, want string
	}{
		{time.Minute, "waiting for a free CPU", "waiting for a free CPU"},
		{time.Minute, "+0.0s laying the network", "+0.0s laying the network"},
		{10 * time.Second, "+3600.0s checkpoint 1h0m0s of 24h0m0s: all well",
			"+3600.0s checkpoint 1h0m0s of 24h0m0s: all well; 10s of wall time, 360 times as fast"},
		{time.Second, "+3700.0s rollout 8 of 240", "+3700.0s rollout 8 of 240"},
		{7 * time.Second, "+7200.0s checkpoint 2h0m0s of 24h0m0s: all well",
			"+7200.0s checkpoint 2h0m0s of 24h0m0s: all well; 18s of wall time, 400 times as fast"},
	} {
		now = now.Add(step.after)
		if got := p.tell(step.line); got != step.want {
			t.Errorf("%q is told as %q, want %q", step.line, got, step.want)
		}
	}
}

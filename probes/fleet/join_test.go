package fleet

import (
	"testing"
	"time"
)

// A worker that joins later starts with the first answer of its target, or without one after joinTimeout.
func TestWorkerThatJoinsWaitsForItsTarget(t *testing.T) {
	const round = 100 * time.Millisecond
	for answers, want := range map[time.Duration]time.Duration{0: 0, joinTimeout / 2: joinTimeout / 2, 2 * joinTimeout: joinTimeout, targetNever: joinTimeout} {
		s, c := newSim(t, 1, 1, map[fate]int{})
		s.calm = true
		s.spawn("first", 0)
		for range 2 {
			c.pollAll(t.Context(), never, 0)
		}
		c.launch()
		s.spawn("second", answers)
		begin := s.clock
		for s.clock < begin+3*joinTimeout {
			c.pollAll(t.Context(), never, 0)
			s.pass(round)
		}
		if len(c.all) != 2 || c.all[1].lane == 0 {
			t.Fatalf("with an answer after %v the second of %d workers has no lane", answers, len(c.all))
		}
		if took := c.all[1].declared - begin; took < want || took > want+10*round {
			t.Errorf("with an answer after %v it started after %v, want about %v", answers, took, want)
		}
	}
}

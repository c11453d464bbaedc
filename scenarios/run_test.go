package scenarios

import (
	"testing"
	"time"
)

// A fault that is shorter than two gaps can fall between attempts: the run would be invalid by chance.
func TestEveryLaneCanSeeTheProofs(t *testing.T) {
	for _, rate := range []float64{proofRate, 25, 50, 99, 100, 5000} {
		gap := time.Duration(float64(time.Second) / rate)
		for _, p := range proofs(rate) {
			if p.For < 2*gap-time.Microsecond {
				t.Errorf("at %g attempts a second a %s lasts %s, less than two gaps of %s", rate, p.kind, p.For, gap)
			}
		}
	}
	if first := proofs(100)[0].For; first != 20*time.Millisecond {
		t.Errorf("at the default rate the smallest proof lasts %s, and so would the detection floor", first)
	}
}

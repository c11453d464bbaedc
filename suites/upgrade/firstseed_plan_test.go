package upgrade

import (
	"testing"
	"time"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/testfiles"
)

// The timeline can be read, for both subjects. Its last rollout leaves the load balancer the time to remove a node.
func TestTheFirstSeedsTimelineIsValid(t *testing.T) {
	for _, to := range []string{seedNew, "subject"} {
		line, err := run.ReadTimeline(t.Context(), testfiles.Write(t, t.TempDir(), "first-seed.timeline", []byte(firstSeed(to))))
		if err != nil {
			t.Fatal(err)
		}
		if at, err := line.Check(); err != nil {
			t.Errorf("line %d: %v", at, err)
		}
		var rolled time.Duration
		for _, s := range line.Steps {
			if s.Verb == "workload rollout" {
				rolled = s.At
			}
		}
		if left := seedEnds - rolled; left < (checkFall+1)*checkEvery+15*time.Second {
			t.Errorf("%v after the last rollout are too short for the health checks", left)
		}
	}
}

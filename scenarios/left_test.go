package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/scenarios/timeline"
)

// The plan of a run tells about how long it goes on; its last phase tells it for sure.
func TestThePlanTellsWhatIsLeft(t *testing.T) {
	line := &timeline.Timeline{Steps: []timeline.Step{{At: 75 * time.Second, Verb: "end"}}}
	for _, c := range []struct {
		scenario Scenario
		phase    string
		set      map[string]string
		want     time.Duration
		sure     bool
	}{
		{quiet(), "baseline", map[string]string{"quietFor": "1m"}, 100 * time.Second, false},
		{quiet(), "scenario", map[string]string{"quietFor": "1m"}, 80 * time.Second, false},
		{quiet(), "settle", map[string]string{"settle": "7s"}, 7 * time.Second, true},
		{quiet(), "end", nil, 0, false},
		{soak(), "scenario", map[string]string{"for": "24h"}, 24*time.Hour + time.Minute, false},
		{interference(), "scenario", map[string]string{"what": "second"}, 0, false},
		{drain(), "settle", nil, 20 * time.Second, true},
		{Replay(line), "scenario", nil, 95 * time.Second, false},
	} {
		p, err := c.scenario.Fill(c.set)
		if err != nil {
			t.Fatal(err)
		}
		if left, sure := c.scenario.Left(c.phase, p, 3); left != c.want || sure != c.sure {
			t.Errorf("%s %s %v: %v is left, sure %t", c.scenario.Name, c.phase, c.set, left, sure)
		}
	}
}

// An estimate follows the parameters that make a scenario longer.
func TestEachEstimateGrows(t *testing.T) {
	longer := map[string]string{"api": "away=1h", "drain": "off=1h", "flap": "watch=1h", "interference": "lasts=1m", "policy": "between=1m", "fault": "faultDuration=30s", "migrate": "downtime=1m", "quiet": "quietFor=1h", "recreate": "away=1m", "restart": "downtime=1m",
		"rollout": "rollouts=9", "scale": "away=1m", "soak": "for=48h", "upgrade": "between=1m"}
	var none []string
	for _, s := range All() {
		p := s.Defaults()
		before, _ := s.Left(phaseScenario, p, 3)
		if before == 0 {
			none = append(none, s.Name)
			continue
		}
		key, value, _ := strings.Cut(longer[s.Name], "=")
		p[key] = value
		if after, _ := s.Left(phaseScenario, p, 3); after <= before {
			t.Errorf("%s: %v, with %s %v", s.Name, before, longer[s.Name], after)
		}
	}
	// A loss ends churn; the others are those of live clusters, beside the estimated ones of labs.
	if want := []string{"churn", "drain", "restart", "upgrade"}; !slices.Equal(none, want) {
		t.Errorf("scenarios without an estimate: %q, want %q", none, want)
	}
}

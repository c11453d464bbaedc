package scenarios

import (
	"testing"
	"time"

	"github.com/hitless/hitless/scenarios/timeline"
)

// The plan of a run tells about how long it goes on; its last phase tells it for sure.
func TestThePlanTellsWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		scenario, phase string
		set             map[string]string
		want            time.Duration
		sure            bool
	}{
		{"quiet", "baseline", map[string]string{"quietFor": "1m"}, 100 * time.Second, false},
		{"quiet", "scenario", map[string]string{"quietFor": "1m"}, 80 * time.Second, false},
		{"quiet", "settle", map[string]string{"settle": "7s"}, 7 * time.Second, true},
		{"quiet", "end", nil, 0, false},
		{"soak", "scenario", map[string]string{"for": "24h"}, 24*time.Hour + time.Minute, false},
		{"drain", "scenario", nil, 0, false},
		{"drain", "settle", nil, 20 * time.Second, true},
		{ReplayName, "scenario", nil, 95 * time.Second, false},
	} {
		p := Replay(&timeline.Timeline{}).Defaults()
		for _, s := range All() {
			if s.Name == c.scenario {
				p = s.Defaults()
			}
		}
		for key, value := range c.set {
			p[key] = value
		}
		if left, sure := Left(c.scenario, c.phase, p, 3, 75*time.Second); left != c.want || sure != c.sure {
			t.Errorf("%+v: %v is left, sure %t", c, left, sure)
		}
	}
}

// An estimate follows the parameters that make a scenario longer.
func TestEachEstimateGrows(t *testing.T) {
	longer := map[string][2]string{"fault": {"faultDuration", "30s"}, "migrate": {"downtime", "1m"}, "quiet": {"quietFor", "1h"}, "recreate": {"away", "1m"},
		"restart": {"downtime", "1m"}, "rollout": {"rollouts", "9"}, "scale": {"away", "1m"}, "soak": {"for", "48h"}, "upgrade": {"between", "1m"}}
	for name := range lasting {
		s, err := Find(name, labOffers)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Defaults()
		before, _ := Left(name, "scenario", p, 3, 0)
		p[longer[name][0]] = longer[name][1]
		if after, _ := Left(name, "scenario", p, 3, 0); after <= before {
			t.Errorf("%s: %v, with %v %v", name, before, longer[name], after)
		}
	}
}

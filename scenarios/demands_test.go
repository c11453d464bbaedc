package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/scenarios/timeline"
)

func demandsOf(t *testing.T, s Scenario, set map[string]string) (loss time.Duration, disturbs bool) {
	t.Helper()
	params, err := s.Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	d := s.demands(params)
	if d.Attempts < 1 || d.Loss < time.Second {
		t.Errorf("scenario %s demands %+v", s.Name, d)
	}
	return d.Loss, d.Disturbs
}

// Each scenario of the lab demands attempts close enough to see the loss that its steps can cause.
func TestEachScenarioDemandsEnough(t *testing.T) {
	for _, s := range All() {
		_, disturbs := demandsOf(t, s, nil)
		if want := s.Name != "quiet"; disturbs != want {
			t.Errorf("scenario %s disturbs: %t, want %t", s.Name, disturbs, want)
		}
	}
	for _, c := range []struct {
		s    Scenario
		set  map[string]string
		want time.Duration
	}{
		{rollout(), nil, 15 * time.Second},
		{rollout(), map[string]string{"checkInterval": "1s", "checkFall": "2"}, 2 * time.Second},
		{rollout(), map[string]string{"checkInterval": "100ms"}, time.Second},
		{restart(), nil, 2 * time.Second},
		{restart(), map[string]string{"downtime": "0s"}, time.Second},
		{restart(), map[string]string{"change": "on"}, 15 * time.Second},
		{soak(), nil, 50 * time.Second},
		{quiet(), nil, 15 * time.Second},
	} {
		if loss, _ := demandsOf(t, c.s, c.set); loss != c.want {
			t.Errorf("%s %v demands to see %s, want %s", c.s.Name, c.set, loss, c.want)
		}
	}
}

// A timeline that changes nothing has the name of quiet; one that does demands to see the time without a proxy.
func TestATimelineThatDisturbsNothingIsQuiet(t *testing.T) {
	for text, want := range map[string]struct {
		name string
		loss time.Duration
	}{
		"+0s end\n": {"quiet", 15 * time.Second},
		"+0s expect balanced web\n+1s client open web\n+2s client close web\n+3s end\n":             {"quiet", 15 * time.Second},
		"+0s workload rollout web\n+1s end\n":                                                       {ReplayName, 15 * time.Second},
		"+0s proxy stop node-1\n+4s proxy start node-1\n+5s end\n":                                  {ReplayName, 4 * time.Second},
		"+0s proxy freeze node-1\n+0s proxy flush node-1\n+3s proxy restore node-1\n+9s end\n":      {ReplayName, 3 * time.Second},
		"+0s proxy block node-1\n+5s proxy unblock node-1\n+9s end\n":                               {ReplayName, 5 * time.Second},
		"+0s proxy stop node-1\n+4s proxy start node-1\n+5s workload scale web replicas=2\n+9s end": {ReplayName, 15 * time.Second},
	} {
		line, err := timeline.Parse("test", []byte("hitless timeline 1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		s := Replay(line)
		loss, disturbs := demandsOf(t, s, nil)
		if s.Name != want.name || loss != want.loss || disturbs != (want.name == ReplayName) {
			t.Errorf("%q is %s, demands to see %s and disturbs: %t", text, s.Name, loss, disturbs)
		}
	}
}

// A run that measures too little to pass is refused before it begins, with what would be enough.
func TestTooLowRatesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		scenario string
		set      map[string]string
		rate     float64
		nodes    int
		want     string // of the error; empty for none
	}{
		"default of a soak":            {"soak", nil, 0.2, 3, ""},
		"a soak on all nodes":          {"soak", map[string]string{"trafficPolicy": "Cluster"}, 0.2, 3, ""},
		"as long as the proof":         {"soak", map[string]string{"baseline": "10s", "trafficPolicy": "Cluster"}, 1, 3, ""},
		"few attempts":                 {"soak", map[string]string{"baseline": "20s"}, 0.1, 3, "a baseline of 20s has 2 attempts, and 10 on 2 paths are the least; give 0.5 attempts"},
		"few on many nodes":            {"rollout", map[string]string{"trafficPolicy": "Cluster"}, 1, 10, "50 on 10 paths are the least"},
		"two lanes have twice as many": {"rollout", map[string]string{"lanes": "tcp-new,udp-fresh"}, 0.5, 3, ""},
		"rare attempts":                {"restart", map[string]string{"baseline": "10m"}, 1, 3, "a faulty proxy loses connections for 2s"},
		"the default of a run":         {"rollout", nil, 100, 3, ""},
	} {
		s := All()[slices.IndexFunc(All(), func(s Scenario) bool { return s.Name == c.scenario })]
		p, err := s.Fill(c.set)
		if err != nil {
			t.Fatal(err)
		}
		err = s.CheckRate(p, c.rate, c.nodes)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

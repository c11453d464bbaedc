package scenarios

import (
	"strings"
	"testing"
)

func TestFillChecksWhatIsGiven(t *testing.T) {
	s := rollout()
	p, err := s.Fill(map[string]string{"replicas": "3"})
	if err != nil || p["replicas"] != "3" || p["trafficPolicy"] != "Local" || p["shutdownDelay"] != "30s" || p["rollouts"] != "2" {
		t.Fatalf("parameters %v, %v", p, err)
	}
	for given, want := range map[string]string{
		"replica=3":            "replicas=1",
		"replicas=none":        "whole number",
		"trafficPolicy=local":  "Local, Cluster",
		"shutdownDelay=30":     "duration",
		"baseline=1s":          "from 10s",
		"terminatingFallback=": "on, off",
	} {
		key, value, _ := strings.Cut(given, "=")
		if _, err := s.Fill(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s gave %v, want a word of %q", given, err, want)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for _, s := range All() {
		seen := map[string]bool{}
		for _, p := range s.AllParameters() {
			required := p.Default == "" && strings.Contains(p.Help, "must be given")
			if err := p.check(p.Default); err != nil && !required {
				t.Errorf("%s: default %s=%s: %v", s.Name, p.Key, p.Default, err)
			}
			if seen[p.Key] {
				t.Errorf("%s has the key %s twice", s.Name, p.Key)
			}
			seen[p.Key] = true
		}
	}
}

func TestUnknownScenarioListsTheKnown(t *testing.T) {
	if _, err := Find("rolout", labOffers); err == nil || !strings.Contains(err.Error(), "rollout") {
		t.Errorf("error %v", err)
	}
}

package scenarios

import (
	"strings"
	"testing"
	"time"
)

func TestFillChecksValues(t *testing.T) {
	s := rollout()
	p, err := s.Fill(map[string]string{"replicas": "3"})
	if err != nil || p["replicas"] != "3" || p["trafficPolicy"] != "Local" || p["shutdownDelay"] != "30s" || p["rollouts"] != "2" {
		t.Fatalf("parameters %v, %v", p, err)
	}
	for given, want := range map[string]string{
		"replica=3":            "did you mean replicas?",
		"replicas=none":        "whole number",
		"trafficPolicy=local":  "Local, Cluster",
		"shutdownDelay=30":     "duration",
		"baseline=1s":          "from 10s",
		"terminatingFallback=": "on, off",
		"hue=red":              "its keys are antiAffinity",
	} {
		key, value, _ := strings.Cut(given, "=")
		if _, err := s.Fill(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s gave %v, want an error with %q", given, err, want)
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

// A parameter has its type's value, and the zero value in a scenario without the parameter.
func TestParametersHaveTypes(t *testing.T) {
	p, err := restart().Fill(map[string]string{"signal": "KILL", "downtime": "90s", "lanes": "udp-fresh,tcp-new", "direct": "on"})
	if err != nil {
		t.Fatal(err)
	}
	if endSignal.Of(p) != "KILL" || downtime.Of(p) != 90*time.Second || Replicas.Of(p) != 3 || !direct.Of(p) || len(Lanes.Of(p)) != 2 || !AntiAffinity.Of(p) {
		t.Errorf("read from %v: %s, %s, %d, %t, %v", p, endSignal.Of(p), downtime.Of(p), Replicas.Of(p), direct.Of(p), Lanes.Of(p))
	}
	if Rollouts.Of(p) != 0 || upgradeBack.Of(p) || ChurnFor.Of(p) != 0 || !p.CollectsWhenIdle() {
		t.Error("a missing key has a value")
	}
}

package run

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/museum"
)

// The scenario of each entry exists and has the entry's parameters.
func TestEntriesCanBeRun(t *testing.T) {
	for _, e := range museum.All() {
		if _, _, err := scenarios.Select(e.Scenario, guest.Offers("replay", "vm"), e.Set); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
}

func TestMuseum(t *testing.T) {
	e, err := museum.Find("k8s-85643")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Set: map[string]string{"rollouts": "1", "replicas": "1"}}
	if err := o.applyEntry(e); err != nil || o.Scenario != "rollout" || o.Set["trafficPolicy"] != "Local" || o.Set["rollouts"] != "1" {
		t.Errorf("%v, %+v", err, o)
	}
	if o.Out != "out/museum-k8s-85643" {
		t.Errorf("the results go to %s", o.Out)
	}
	o = Options{Set: map[string]string{"trafficPolicy": "Cluster"}, Out: t.TempDir()}
	if _, _, err := Museum(t.Context(), o, e); !IsUsage(err) || !strings.Contains(err.Error(), "needs trafficPolicy=Local") {
		t.Errorf("a parameter that the bug needs was changed: %v", err)
	}
	o = Options{LabOptions: site.LabOptions{Subject: "cilium"}, Out: t.TempDir()}
	if _, _, err := Museum(t.Context(), o, e); !IsUsage(err) {
		t.Errorf("an unknown subject gave %v", err)
	}
}

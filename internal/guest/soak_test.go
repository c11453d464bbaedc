package guest

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runSoak soaks two nodes for an hour, with what the set asks for and no other churn.
func runSoak(t *testing.T, set map[string]string, deaf bool) (*stage, *powered, error) {
	t.Helper()
	all := map[string]string{"for": "1h", "rolloutsPerHour": "0", "restartsPerHour": "0", "scalesPerHour": "0", "trafficPolicy": "Cluster"}
	maps.Copy(all, set)
	s, p := newPoweredStage(t, "soak", all, deaf)
	s.world.Random, s.world.Failures = rand.New(rand.NewPCG(1, 1)), s.Failures
	s.world.Hold = func(context.Context, string) (io.Closer, error) { return io.NopCloser(strings.NewReader("")), nil }
	return s, p, s.play(t, "soak")
}

// Pods that can flap have a gate, and whoever rolls and scales them out meanwhile must open those of the new ones.
func TestASoakFlapsAndRollsTheSamePods(t *testing.T) {
	s, _, err := runSoak(t, map[string]string{"flapsPerHour": "3", "rolloutsPerHour": "3", "scalesPerHour": "2"}, false)
	if err != nil || !slices.Equal(s.steps("8 of 8 planned disturbances had their effect"), []string{"begin", "end"}) {
		t.Errorf("%v; %v", err, s.steps(""))
	}
}

func TestASoakLosesNodesAndBootsThem(t *testing.T) {
	set := map[string]string{"nodeLossesPerHour": "2"}
	s, p, err := runSoak(t, set, false)
	if err != nil || len(p.done) != 4 || !strings.HasPrefix(p.done[0], "off ") || p.done[1] != "on "+strings.TrimPrefix(p.done[0], "off ") {
		t.Errorf("%v; %q; %v", err, p.done, s.steps(""))
	}
	if s, _, err = runSoak(t, set, true); err == nil || len(s.steps("loss of a node")) != 4 || slices.Contains(s.steps("loss of a node"), "end") {
		t.Errorf("a node that kept its power was taken for a lost one: %v; %v", err, s.steps(""))
	}
}

// What changes and drains beside the measured Service is there before the churn, and counts as churn only where it changes.
func TestASoakChangesAndDrainsBeside(t *testing.T) {
	s, _, err := runSoak(t, map[string]string{"burstsPerHour": "4", "burst": "100ms", "burstAt": "150ms", "drainedPorts": "3"}, false)
	if err != nil || !slices.Equal(s.steps("4 of 4 planned disturbances had their effect"), []string{"begin", "end"}) {
		t.Fatalf("%v; %v", err, s.steps(""))
	}
	drained, err := s.client.CoreV1().Services("default").Get(t.Context(), "drained", metav1.GetOptions{})
	if err != nil || len(drained.Spec.Ports) != 3 {
		t.Errorf("%v; the drained Service has the ports %+v", err, drained.Spec.Ports)
	}
	slice, err := s.client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "busy-1", metav1.GetOptions{})
	// Four bursts of two changes, after the first addresses.
	if err != nil || slice.Endpoints[0].Addresses[0] != "192.0.2.9" {
		t.Errorf("%v; the endpoints are %+v, want those after eight changes", err, slice)
	}
}

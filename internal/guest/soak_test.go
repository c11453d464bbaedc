//go:build linux

package guest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runSoak soaks two nodes for an hour, with what the set asks for and no other churn.
func runSoak(t *testing.T, set map[string]string, deaf bool) (*stage, *powered, error) {
	t.Helper()
	all := map[string]string{"for": "1h", "rolloutsPerHour": "0", "restartsPerHour": "0", "scalesPerHour": "0", "trafficPolicy": "Cluster"}
	maps.Copy(all, set)
	s, p := newPoweredStage(t, "soak", all, deaf)
	s.world.Random = rand.New(rand.NewPCG(1, 1))
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
	set := map[string]string{"nodeLossesPerHour": "2", "keepGoing": "on"}
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

// crashed are proxies of which one has ended by itself, and some do not start again.
type crashed struct {
	restarts
	ended, ill string
}

func (c *crashed) Pid(node string) (int, error) {
	if node == c.ended {
		return 0, errors.New("no proxy runs")
	}
	return c.restarts.Pid(node)
}

func (c *crashed) Start(ctx context.Context, node string) error {
	if node == c.ill {
		return errors.New("it did not become ready")
	}
	if node == c.ended {
		c.ended = ""
	}
	return c.restarts.Start(ctx, node)
}

// A crash of the subject is no fault of the run: who restarts the proxies starts those that have ended too.
func TestASoakRestartsAProxyThatHasCrashed(t *testing.T) {
	s := newStage(t, "soak", map[string]string{"for": "1h", "rolloutsPerHour": "0", "restartsPerHour": "20", "scalesPerHour": "0", "trafficPolicy": "Cluster", "antiAffinity": "off"})
	proxies := &crashed{ended: "node-2"}
	s.world.Site.OfferProxies(proxies)
	s.world.Random = rand.New(rand.NewPCG(1, 1))
	if err := s.play(t, "soak"); err != nil || len(proxies.nodes) != 20 || proxies.ended != "" {
		t.Errorf("%v; started again: %v; %v", err, proxies.nodes, s.steps(""))
	}
}

// What was lost stays lost, also when a proxy cannot be restarted to see whether that cures it.
func TestALossStaysSeenWhenTheCureFails(t *testing.T) {
	s := newStage(t, "soak", map[string]string{"for": "1h", "trafficPolicy": "Cluster", "antiAffinity": "off"})
	proxies := &crashed{ended: "node-1", ill: "node-1"}
	s.world.Site.OfferProxies(proxies)
	s.world.Random = rand.New(rand.NewPCG(1, 1))
	s.failures = func() int { return int(s.Now() / (3 * time.Minute)) }
	if err := s.play(t, "soak"); err != nil {
		t.Errorf("the soak is invalid: %v", err)
	}
	if got := s.steps("restart the proxy of node-1"); !slices.Equal(got, []string{"begin", "missed"}) {
		t.Errorf("the restart of a proxy that does not start is told as %v", got)
	}
	if got := s.steps("restart the proxy of node-2"); !slices.Equal(got, []string{"begin", "end"}) {
		t.Errorf("the next one is told as %v", got)
	}
}

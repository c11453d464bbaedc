//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
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
	synctest.Test(t, func(t *testing.T) {
		s, _, err := runSoak(t, map[string]string{"flapsPerHour": "3", "rolloutsPerHour": "3", "scalesPerHour": "2"}, false)
		if err != nil || !slices.Equal(s.steps("8 of 8 planned disturbances had their effect"), []string{"begin", "end"}) {
			t.Errorf("%v; %v", err, s.steps(""))
		}
	})
}

func TestASoakLosesNodesAndBootsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := map[string]string{"nodeLossesPerHour": "2", "keepGoing": "on"}
		s, p, err := runSoak(t, set, false)
		if err != nil || len(p.done) != 4 || !strings.HasPrefix(p.done[0], "off ") || p.done[1] != "on "+strings.TrimPrefix(p.done[0], "off ") {
			t.Errorf("%v; %q; %v", err, p.done, s.steps(""))
		}
		if s, _, err = runSoak(t, set, true); err == nil || len(s.steps("loss of a node")) != 4 || slices.Contains(s.steps("loss of a node"), "end") {
			t.Errorf("a node that kept its power was taken for a lost one: %v; %v", err, s.steps(""))
		}
	})
}

// What changes and drains beside the measured Service is there before the churn, and counts as churn only where it changes.
func TestASoakChangesAndDrainsBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
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
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "soak", map[string]string{"for": "1h", "rolloutsPerHour": "0", "restartsPerHour": "20", "scalesPerHour": "0", "trafficPolicy": "Cluster", "antiAffinity": "off"})
		proxies := &crashed{ended: "node-2"}
		s.world.Site.OfferProxies(proxies)
		s.world.Random = rand.New(rand.NewPCG(1, 1))
		if err := s.play(t, "soak"); err != nil || len(proxies.nodes) != 20 || proxies.ended != "" {
			t.Errorf("%v; started again: %v; %v", err, proxies.nodes, s.steps(""))
		}
	})
}

// What was lost stays lost, also when a proxy cannot be restarted to see whether that cures it.
func TestALossStaysSeenWhenTheCureFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// proofsOf are the proofs of a run, each with its states.
func (s *stage) proofsOf() (proofs []string) {
	for _, e := range s.events {
		if p, is := e.Body.(record.Proof); is {
			proofs = append(proofs, fmt.Sprintf("%d %s", p.Number, p.State))
		}
	}
	return proofs
}

// A soak proves its detector again, on a canary Service that exists for the proof only.
func TestASoakProvesItsDetectorAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for every, want := range map[string][]string{
			"0s":  {"1 begin", "1 end"},
			"2h":  {"1 begin", "1 end"},
			"20m": {"1 begin", "1 end", "2 begin", "2 end", "3 begin", "3 end", "4 begin", "4 end"},
		} {
			s, _, err := runSoak(t, map[string]string{"flapsPerHour": "2", "proofEvery": every}, false)
			if err != nil || !slices.Equal(s.proofsOf(), want) {
				t.Errorf("proofEvery=%s: %v; the proofs are %q, want %q", every, err, s.proofsOf(), want)
			}
			var canaries []string
			for _, l := range s.lanes {
				if strings.HasPrefix(l.Name, "canary") && !strings.Contains(l.Name, "misrouted") {
					canaries = append(canaries, l.Name)
				}
			}
			if all := []string{"canary", "canary-2", "canary-3", "canary-4"}; !slices.Equal(canaries, all[:len(want)/2]) {
				t.Errorf("proofEvery=%s: the control lanes are %q", every, canaries)
			}
			if _, err := s.client.CoreV1().Services("default").Get(t.Context(), "canary", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("proofEvery=%s: the canary's Service is there after the soak: %v", every, err)
			}
		}
	})
}

// A proof that the subject prevents is no error of the run: the record tells it, and the churn goes on.
func TestASoakGoesOnWithoutAProofThatTheSubjectPrevents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newPoweredStage(t, "soak", map[string]string{"for": "2h", "rolloutsPerHour": "0", "restartsPerHour": "0", "scalesPerHour": "0", "flapsPerHour": "2", "trafficPolicy": "Cluster",
			"keepGoing": "on", "proofEvery": "90m"}, false)
		s.world.Random = rand.New(rand.NewPCG(1, 1))
		s.over = func(string, bool) bool { return true } // no node follows the removal of an endpoint
		if err := s.play(t, "soak"); err != nil {
			t.Fatal(err)
		}
		if got, want := s.proofsOf(), []string{"1 begin", "1 end", "2 unmade"}; !slices.Equal(got, want) {
			t.Errorf("the proofs are %q, want %q", got, want)
		}
		if got := s.steps("4 of 4 planned disturbances had their effect"); !slices.Equal(got, []string{"begin", "end"}) {
			t.Errorf("the churn did not go on: %v", s.steps(""))
		}
	})
}

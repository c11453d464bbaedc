//go:build linux

package guest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/scenarios"
)

// powered are nodes whose power goes and comes. The proxy of a node has another process id after each boot.
type powered struct {
	idle
	off  map[string]bool
	boot int
	deaf bool // the power stays
	done []string
}

func (p *powered) Command(context.Context, string, ...string) (string, error) { return "", nil }

func (p *powered) AddAddress(node, prefix string) error    { return p.did("add", node, prefix) }
func (p *powered) RemoveAddress(node, prefix string) error { return p.did("remove", node, prefix) }
func (p *powered) AnswersARP(_ context.Context, address string) ([]string, error) {
	return nil, p.did("arp", address)
}
func (p *powered) SetSysctl(node, name, value string) error {
	return p.did("set", node, name, value)
}

func (p *powered) did(words ...string) error {
	p.done = append(p.done, strings.Join(words, " "))
	return nil
}

func (p *powered) PowerOff(_ context.Context, node string) error {
	p.done = append(p.done, "off "+node)
	p.off[node] = !p.deaf
	return nil
}

func (p *powered) PowerOn(_ context.Context, node string) error {
	p.done = append(p.done, "on "+node)
	p.off[node] = false
	p.boot++
	return nil
}

func (p *powered) Pid(node string) (int, error) {
	if p.off[node] {
		return 0, errors.New("no proxy runs")
	}
	return 100 + p.boot, nil
}

// newPoweredStage is a stage for a scenario whose two nodes the API knows and whose power goes, unless it is deaf.
func newPoweredStage(t *testing.T, scenario string, set map[string]string, deaf bool) (*stage, *powered) {
	t.Helper()
	set["antiAffinity"] = "off"
	s := newStage(t, scenario, set)
	s.addNodes(t)
	p := &powered{off: map[string]bool{}, deaf: deaf}
	s.world.Site.OfferProxies(p).OfferPower(p).OfferCommands(p)
	return s, p
}

// addNodes makes the nodes known to the API.
func (s *stage) addNodes(t *testing.T) {
	t.Helper()
	for _, name := range s.world.Nodes {
		if _, err := s.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// play runs a scenario on the stage.
func (s *stage) play(t *testing.T, name string) error {
	t.Helper()
	scenario := find(t, name)
	return scenarios.Run(t.Context(), scenario, &s.world)
}

func runDrain(t *testing.T, set map[string]string, deaf bool) (*stage, *powered, error) {
	t.Helper()
	s, p := newPoweredStage(t, "drain", set, deaf)
	return s, p, s.play(t, "drain")
}

func (s *stage) nodesOfPods(t *testing.T) (nodes []string) {
	t.Helper()
	pods, err := s.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		nodes = append(nodes, pod.Spec.NodeName)
	}
	return nodes
}

func TestADrainedNodeLosesItsPodsAndGetsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, err := runDrain(t, map[string]string{"replicas": "2"}, false)
		if err != nil {
			t.Fatal(err)
		}
		if nodes := s.nodesOfPods(t); !slices.Equal(nodes, []string{"node-2", "node-2"}) || len(p.done) > 0 {
			t.Errorf("the pods are on %q, and the power did %q", nodes, p.done)
		}
		if states := s.steps("evict"); !slices.Equal(states, []string{"begin", "end"}) {
			t.Errorf("the eviction went %q", states)
		}
	})
}

// With a budget that needs every pod nothing can be evicted, and a drain that did not happen is never a green run.
func TestABudgetWithoutRoomKeepsThePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, err := runDrain(t, map[string]string{"replicas": "2", "minAvailable": "2", "gracePeriod": "1s"}, false)
		if err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("draining against the budget gave %v", err)
		}
		if nodes := s.nodesOfPods(t); !slices.Equal(nodes, []string{"node-1", "node-2"}) {
			t.Errorf("the pods are on %q", nodes)
		}
	})
}

func TestTheAutoscalerTakesANodeWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, err := runDrain(t, map[string]string{"replicas": "1", "what": "scaledown"}, false)
		if err != nil {
			t.Fatal(err)
		}
		with := s.nodesOfPods(t)
		if len(with) != 1 || len(p.done) != 1 || p.done[0] == "off "+with[0] {
			t.Errorf("the pods are on %q, and the power did %q", with, p.done)
		}
		node, err := s.client.CoreV1().Nodes().Get(t.Context(), strings.TrimPrefix(p.done[0], "off "), metav1.GetOptions{})
		if err != nil || len(node.Spec.Taints) != 1 || !node.Spec.Unschedulable {
			t.Errorf("the node was not marked: %+v, %v", node.Spec, err)
		}
		if s.Now() < 30e9 {
			t.Errorf("the node had %s to leave", s.Now())
		}
	})
}

func TestARebootTakesThePowerAndGivesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, err := runDrain(t, map[string]string{"what": "reboot"}, false)
		if err != nil || !slices.Equal(p.done, []string{"off node-1", "on node-1"}) {
			t.Errorf("the power did %q: %v", p.done, err)
		}
	})
}

// A power cut that nothing notices is an error, whatever traffic says of it.
func TestANodeWhoseProxyGoesOnDidNotLosePower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, _, err := runDrain(t, map[string]string{"what": "poweroff"}, true); err == nil || !strings.Contains(err.Error(), "did not lose power") {
			t.Errorf("a power cut that nothing noticed gave %v", err)
		}
	})
}

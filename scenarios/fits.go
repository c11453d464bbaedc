package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// CheckNodes returns an error for parameters that cannot hold on a site with just these nodes: a node that does not exist, pods without
// a node of their own, or steps that need a free node. Without it such a run would fail after its start.
func (s Scenario) CheckNodes(p Params, nodes []string) error {
	if err := s.checkNodeChoice(p, nodes); err != nil {
		return err
	}
	if grace, stop := GracePeriod.Of(p), PreStop.Of(p); stop > grace {
		return fmt.Errorf("--set %s with %s: a preStop sleep must end within the grace period; give a longer gracePeriod", p.given(PreStop.Parameter), p.given(GracePeriod.Parameter))
	}
	if !AntiAffinity.Of(p) {
		return nil
	}
	why, free := s.freeNodes(p)
	if need := Replicas.Of(p) + free; need > len(nodes) {
		if free == 0 {
			why = "each pod runs on a node of its own"
		}
		return fmt.Errorf("--set %s with antiAffinity=on needs %d nodes, and there are %d: %s; give fewer replicas, more --nodes, or --set antiAffinity=off",
			p.given(Replicas.Parameter), need, len(nodes), why)
	}
	return nil
}

// checkNodeChoice refuses a node that does not exist. auto is one where it is the default.
func (s Scenario) checkNodeChoice(p Params, nodes []string) error {
	i := slices.IndexFunc(s.Parameters, func(own Parameter) bool { return own.Key == nodeChoice.Key })
	node := nodeChoice.Of(p)
	if i < 0 || slices.Contains(nodes, node) || node == "auto" && s.Parameters[i].Default == node {
		return nil
	}
	return fmt.Errorf("--set %s: there is no such node; the nodes are %s", p.given(nodeChoice.Parameter), strings.Join(nodes, ", "))
}

// evicts reports whether a step evicts the pods of a node.
func evicts(step string) bool { return step == "node evict" || step == stepLiveEvict }

// freeNodes is how many nodes without a pod the steps need, and why.
func (s Scenario) freeNodes(p Params) (why string, n int) {
	steps := s.steps(p)
	switch kind := drainKind.Of(p); {
	case slices.Contains(steps, "workload rollout") && s.Name != ReplayName: // a timeline may roll another workload, or fewer pods
		return "a rollout starts each new pod before an old one ends", 1
	case scaleRate.Of(p) > 0:
		return "scaling out adds a pod", 1
	case slices.ContainsFunc(steps, evicts) && (kind == "drain" || kind == "scaledown"):
		return "the pods of the node that leaves need another one", 1
	}
	return "", 0
}

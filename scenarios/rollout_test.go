package scenarios

import (
	"strings"
	"testing"
)

// A Deployment with a pod on every node, and anti-affinity, cannot be rolled. The error is immediate.
func TestDeploymentWithoutSurgeIsNotRolled(t *testing.T) {
	w := &World{Nodes: []string{"node-1", "node-2", "node-3"}, Params: Params{"antiAffinity": "on"}, run: runState{main: &workload{name: "web", replicas: 3}}}
	if err := w.rollAndFollow(t.Context()); err == nil || !strings.Contains(err.Error(), "3 replicas that keep to different nodes on 3 nodes") {
		t.Errorf("a rollout without a free node gave %v", err)
	}
}

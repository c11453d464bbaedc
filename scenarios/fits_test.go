package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hitless/hitless/scenarios/timeline"
)

// Parameters that cannot hold on the nodes are errors before a run, and each has a neighbour that can.
func TestCheckNodes(t *testing.T) {
	for _, c := range []struct {
		scenario, set string
		nodes         int
		want          string // empty: it fits
	}{
		{"fault", "node=node-9", 3, "the nodes are node-1, node-2, node-3"},
		{"fault", "node=auto", 3, "no such node"},
		{"fault", "node=node-3", 3, ""},
		{"drain", "node=node-4", 3, "no such node"},
		{"drain", "node=auto", 3, ""},
		{"interference", "node=node-0", 3, "no such node"},
		{"rollout", "", 1, "needs 2 nodes, and there are 1"},
		{"rollout", "antiAffinity=off", 1, ""},
		{"rollout", "replicas=3", 3, "needs 4 nodes"},
		{"rollout", "replicas=2", 3, ""},
		{"restart", "", 1, "needs 3 nodes"},
		{"restart", "replicas=1", 1, ""},
		{"restart", "replicas=7", 5, "needs 7 nodes, and there are 5"},
		{"restart", "replicas=5", 5, ""},
		{"upgrade", "to=itself", 3, ""},
		{"upgrade", "to=itself roll=on", 3, "needs 4 nodes"},
		{"upgrade", "to=itself empty=on", 3, ""},
		{"drain", "replicas=3", 3, "needs 4 nodes"},
		{"drain", "replicas=3 what=poweroff", 3, ""},
		{"drain", "replicas=3 what=scaledown", 3, "needs 4 nodes"},
		{"soak", "", 2, "needs 3 nodes"},
		{"soak", "rolloutsPerHour=0", 2, "needs 3 nodes"},
		{"soak", "rolloutsPerHour=0 scalesPerHour=0", 2, ""},
		{"churn", "", 1, ""},
		{"quiet", "preStop=61s", 3, "grace period"},
		{"quiet", "preStop=60s", 3, ""},
	} {
		t.Run(fmt.Sprintf("%s %s with %d nodes", c.scenario, c.set, c.nodes), func(t *testing.T) {
			given := map[string]string{}
			for _, pair := range strings.Fields(c.set) {
				key, value, _ := strings.Cut(pair, "=")
				given[key] = value
			}
			s, p, err := Select(c.scenario, labOffers, given)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.CheckNodes(p, labNodes(c.nodes)); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A timeline says itself where pods go: only its scenario needs a node for the pods that it evicts.
func TestTimelinesMayEvictWithoutAFreeNode(t *testing.T) {
	line, err := timeline.Parse("f", []byte("hitless timeline 1\nset antiAffinity=on\nset replicas=3\n+0s node evict node-1\n+1s workload scale web replicas=2\n+2s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Replay(line).Select(labOffers, map[string]string{"antiAffinity": "on", "replicas": "3"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Replay(line).CheckNodes(p, labNodes(3)); err != nil {
		t.Error(err)
	}
}

func labNodes(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("node-%d", i+1))
	}
	return names
}

// The defaults of all scenarios fit a lab's three nodes, and no parameter takes an empty value.
func TestDefaultsFitThreeNodes(t *testing.T) {
	for _, s := range All() {
		if len(s.Lacks(labOffers)) == 0 {
			if err := s.CheckNodes(s.Defaults(), labNodes(3)); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
		for _, p := range s.AllParameters() {
			if _, err := s.Fill(map[string]string{p.Key: ""}); err == nil {
				t.Errorf("%s takes %s=", s.Name, p.Key)
			}
		}
	}
}

package lab

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/record"
)

type deaf struct{}

func (deaf) Event(record.Event)     {}
func (deaf) Attempt(record.Attempt) {}

// A port that is taken away leaves the others as they are, and a Service is balanced only when all of its ports are.
func TestBalancedLooksAtEveryPort(t *testing.T) {
	table := newBalancerTable(deaf{})
	say := func(port, nodes, all string) {
		table.Event(record.Event{LegacyKind: record.KindMembership, Attrs: map[string]string{"service": "default/web", "protocol": "tcp",
			"port": port, "nodes": nodes, "all": all}})
	}
	for _, step := range []struct {
		port, nodes, all string
		want             []string
	}{
		{"80", "node-2,node-1", "node-1,node-2", []string{"node-1", "node-2"}},
		{"81", "node-2", "node-1,node-2", []string{"node-2"}},
		{"81", "", "", []string{"node-1", "node-2"}},
		{"80", "", "node-1,node-2", nil},
	} {
		say(step.port, step.nodes, step.all)
		if got := table.nodes("web"); !slices.Equal(got, step.want) {
			t.Errorf("after port %s went to %q of %q the nodes are %v, want %v", step.port, step.nodes, step.all, got, step.want)
		}
	}
}

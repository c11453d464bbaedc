package lab

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/record"
)

type discard struct{}

func (discard) Event(record.Event)     {}
func (discard) Attempt(record.Attempt) {}

// Removing a port leaves the others unchanged, and a node is a member only if all ports include it.
func TestMembershipRequiresEveryPort(t *testing.T) {
	table := newMembershipRecorder(discard{})
	recordMembership := func(port, nodes, all string) {
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
		recordMembership(step.port, step.nodes, step.all)
		if got := table.nodes("web"); !slices.Equal(got, step.want) {
			t.Errorf("after port %s went to %q of %q the nodes are %v, want %v", step.port, step.nodes, step.all, got, step.want)
		}
	}
}

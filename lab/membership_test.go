package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
)

type discard struct{}

func (discard) Event(record.Event)     {}
func (discard) Attempt(record.Attempt) {}

// Removing a port leaves the others unchanged, and a node is a member only if all ports include it.
func TestMembershipRequiresEveryPort(t *testing.T) {
	table := newMembershipRecorder(discard{})
	words := func(text string) []string { return strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) }
	recordMembership := func(port uint16, nodes, all string) {
		table.Event(record.Event{Body: record.Membership{Service: "default/web", Protocol: "tcp", Port: port, Nodes: words(nodes), All: words(all)}})
	}
	for _, step := range []struct {
		port       uint16
		nodes, all string
		want       []string
	}{
		{80, "node-2,node-1", "node-1,node-2", []string{"node-1", "node-2"}},
		{81, "node-2", "node-1,node-2", []string{"node-2"}},
		{81, "", "", []string{"node-1", "node-2"}},
		{80, "", "node-1,node-2", nil},
	} {
		recordMembership(step.port, step.nodes, step.all)
		if got := table.nodes("web"); !slices.Equal(got, step.want) {
			t.Errorf("after port %d went to %q of %q the nodes are %v, want %v", step.port, step.nodes, step.all, got, step.want)
		}
	}
}

package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hitless/hitless/record"
)

// membershipRecorder passes events on and stores the load balancer's current membership.
type membershipRecorder struct {
	record.Recorder
	mu             sync.Mutex
	nodesByService map[string]map[string][]string // key: name of the Service, then family, protocol and port
}

func newMembershipRecorder(r record.Recorder) *membershipRecorder {
	return &membershipRecorder{Recorder: r, nodesByService: map[string]map[string][]string{}}
}

// Event stores a membership event and passes every event on.
func (t *membershipRecorder) Event(e record.Event) {
	if m, is := e.Body.(record.Membership); is {
		t.store(m)
	}
	t.Recorder.Event(e)
}

func (t *membershipRecorder) store(m record.Membership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	service := m.Service[strings.LastIndex(m.Service, "/")+1:]
	port := fmt.Sprintf("%s %s %d", record.FamilyOf(m.Address), m.Protocol, m.Port)
	if len(m.All) == 0 { // the port was removed
		delete(t.nodesByService[service], port)
		return
	}
	if t.nodesByService[service] == nil {
		t.nodesByService[service] = map[string][]string{}
	}
	t.nodesByService[service][port] = m.Nodes
}

// nodes returns the nodes that get new flows to every port of the Service in each of its families, sorted.
func (t *membershipRecorder) nodes(service string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var common []string
	for i, port := range slices.Sorted(maps.Keys(t.nodesByService[service])) {
		nodes := t.nodesByService[service][port]
		if i == 0 {
			common = slices.Clone(nodes)
			continue
		}
		common = slices.DeleteFunc(common, func(n string) bool { return !slices.Contains(nodes, n) })
	}
	slices.Sort(common)
	return common
}

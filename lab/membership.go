package lab

import (
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
	nodesByService map[string]map[string][]string // key: name of the Service, then protocol and port
}

func newMembershipRecorder(r record.Recorder) *membershipRecorder {
	return &membershipRecorder{Recorder: r, nodesByService: map[string]map[string][]string{}}
}

// Event stores a membership event and passes every event on.
func (t *membershipRecorder) Event(e record.Event) {
	if e.Kind() == record.KindMembership {
		t.store(e.Attrs)
	}
	t.Recorder.Event(e)
}

func (t *membershipRecorder) store(attrs map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	service := attrs["service"][strings.LastIndex(attrs["service"], "/")+1:]
	port := attrs["protocol"] + " " + attrs["port"]
	if attrs["all"] == "" { // the port was removed
		delete(t.nodesByService[service], port)
		return
	}
	if t.nodesByService[service] == nil {
		t.nodesByService[service] = map[string][]string{}
	}
	t.nodesByService[service][port] = strings.FieldsFunc(attrs["nodes"], func(r rune) bool { return r == ',' })
}

// nodes returns the nodes that get new flows to every port of the Service, sorted.
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

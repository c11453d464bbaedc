package lab

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hitless/hitless/record"
)

// balancerTable passes events on and remembers what the balancer's table says.
type balancerTable struct {
	record.Recorder
	mu    sync.Mutex
	table map[string]map[string][]string // nodes by name of the Service, and by protocol and port
}

func newBalancerTable(r record.Recorder) *balancerTable {
	return &balancerTable{Recorder: r, table: map[string]map[string][]string{}}
}

// Event remembers the table and passes the event on.
func (t *balancerTable) Event(e record.Event) {
	if e.Kind() == record.KindMembership {
		t.remember(e.Attrs)
	}
	t.Recorder.Event(e)
}

func (t *balancerTable) remember(attrs map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	service := attrs["service"][strings.LastIndex(attrs["service"], "/")+1:]
	port := attrs["protocol"] + " " + attrs["port"]
	if attrs["all"] == "" { // the Service has this port no longer
		delete(t.table[service], port)
		return
	}
	if t.table[service] == nil {
		t.table[service] = map[string][]string{}
	}
	t.table[service][port] = strings.FieldsFunc(attrs["nodes"], func(r rune) bool { return r == ',' })
}

// nodes are those that new flows to every port of the Service may go to, sorted.
func (t *balancerTable) nodes(service string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var common []string
	for i, port := range slices.Sorted(maps.Keys(t.table[service])) {
		nodes := t.table[service][port]
		if i == 0 {
			common = slices.Clone(nodes)
			continue
		}
		common = slices.DeleteFunc(common, func(n string) bool { return !slices.Contains(nodes, n) })
	}
	slices.Sort(common)
	return common
}

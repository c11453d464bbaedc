package balancer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/record"
)

// flowBatch is how many connections one event of the history tells of.
const flowBatch = 256

// flowLog gathers what a forwarder says about the connections to one service, and tells the history in batches.
type flowLog struct {
	cfg     Config
	table   table
	waiting map[uint16][]record.Flow // by port of the service
}

func newFlowLog(cfg Config, t table) *flowLog {
	return &flowLog{cfg: cfg, table: t, waiting: map[uint16][]record.Flow{}}
}

func (l *flowLog) add(port uint16, f record.Flow) {
	l.waiting[port] = append(l.waiting[port], f)
	if len(l.waiting[port]) >= flowBatch {
		l.tell(port)
	}
}

// flush tells what is still waiting.
func (l *flowLog) flush() {
	for _, port := range slices.Sorted(maps.Keys(l.waiting)) {
		l.tell(port)
	}
}

func (l *flowLog) tell(port uint16) {
	flows := l.waiting[port]
	delete(l.waiting, port)
	l.cfg.Recorder.Event(record.Event{At: l.cfg.Now(), Object: l.table.service,
		Text: fmt.Sprintf("the nodes of %d connections to %s", len(flows), l.table.service),
		Body: record.Flows{Service: l.table.service, Address: l.table.addr, Port: port, Protocol: "tcp", Flows: flows}})
}

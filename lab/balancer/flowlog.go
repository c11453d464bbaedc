package balancer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/record"
)

// flowBatch is the maximum number of connections in one event.
const flowBatch = 256

// flowLog collects the forwarder's reports of connections to one service and records them in batches.
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
		l.recordBatch(port)
	}
}

// flush records the waiting connections.
func (l *flowLog) flush() {
	for _, port := range slices.Sorted(maps.Keys(l.waiting)) {
		l.recordBatch(port)
	}
}

func (l *flowLog) recordBatch(port uint16) {
	flows := l.waiting[port]
	delete(l.waiting, port)
	l.cfg.Recorder.Event(record.Event{At: l.cfg.Now(), Object: l.table.service,
		Text: fmt.Sprintf("the nodes of %d connections to %s", len(flows), l.table.service),
		Body: record.Flows{Service: l.table.service, Address: l.table.addr, Port: port, Protocol: "tcp", Flows: flows}})
}

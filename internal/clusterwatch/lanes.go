package clusterwatch

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

// lanes are the lanes of a watch. Its methods are safe for concurrent use.
type lanes struct {
	mu       sync.Mutex
	last     uint16
	names    map[string]int // how often each was used
	measures map[uint16]bool
	running  map[cluster.External]target
	ended    map[cluster.External]target
	before   map[string]record.LeftLane // lanes of a killed watch, by the name of their external address
}

func newLanes() *lanes {
	return &lanes{names: map[string]int{}, measures: map[uint16]bool{}, running: map[cluster.External]target{}, ended: map[cluster.External]target{}, before: map[string]record.LeftLane{}}
}

// id returns the next id of a lane.
func (l *lanes) id() uint16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

// room returns why a lane would get no id; empty if there is one for it, and for its fresh lane.
func (l *lanes) room(lane probes.Lane) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	needs := uint16(1)
	if lane.KeepsConnections() {
		needs++
	}
	if math.MaxUint16-l.last >= needs {
		return ""
	}
	return fmt.Sprintf("the watch has had %d lanes, and a record has ids for %d; end it, and start another watch for this address", l.last, math.MaxUint16)
}

// measured reports whether a lane's attempts count.
func (l *lanes) measured(id uint16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.measures[id]
}

// resume takes over the names and ids of a killed watch.
func (l *lanes) resume(left *record.Left) {
	l.last = left.LastLane
	for _, name := range left.Names {
		l.names[plainName(name)]++
	}
	for _, lane := range left.Lanes {
		if !lane.Control {
			l.before[plainName(lane.Name)] = lane
		}
	}
}

// plainName is the name of a lane without the number that tells it from earlier ones to the same address.
func plainName(name string) string {
	if i := strings.LastIndex(name, " ("); i >= 0 && strings.HasSuffix(name, ")") {
		return name[:i]
	}
	return name
}

// add gives a lane its id and its name.
func (l *lanes) add(t *target) {
	t.lane.ID = l.id()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names[t.lane.Name]++; l.names[t.lane.Name] > 1 {
		t.lane.Name = fmt.Sprintf("%s (%d)", t.lane.Name, l.names[t.lane.Name])
	}
	l.measures[t.lane.ID], l.running[t.External] = true, *t
}

// remove forgets a lane that has ended.
func (l *lanes) remove(e cluster.External) (t target, was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, was = l.running[e]; was {
		l.ended[e] = t
	}
	delete(l.running, e)
	return t, was
}

// again returns the target of the last lane to an address. Its lane knows what a correct answer is.
func (l *lanes) again(e cluster.External) (t target, was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, was = l.ended[e]
	return t, was
}

// runs reports whether the lane of a target still runs.
func (l *lanes) runs(t target) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, runs := l.running[t.External]
	return runs && now.lane.ID == t.lane.ID
}

// used reports whether the watch, or one that it resumes, has had a lane to an address.
func (l *lanes) used(e cluster.External) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[e.String()] > 0
}

// all returns the running lanes in the order of their ids.
func (l *lanes) all() []target {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []target
	for _, t := range l.running {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b target) int { return int(a.lane.ID) - int(b.lane.ID) })
	return list
}

// startLane starts the lane of a target that has answered; joined says that it begins later than the others.
func (w *watcher) startLane(t target, at time.Duration, joined bool) error {
	t.from = at
	if t.lane.KeepsConnections() {
		defer func() { w.lanes.id() }() // of its fresh lane
	}
	w.lanes.add(&t)
	if t.lane.KeepsConnections() {
		t.lane.Fresh = t.lane.ID + 1
	}
	w.missing(t.External.String(), at)
	w.exporter.begin(t)
	w.causes.about(t.Service)
	return w.meter.Start(t.lane, at, func(l *record.Lane) {
		l.Service, l.Node, l.Local, l.Joined = t.Service, t.Node, t.local, joined
	})
}

// endLane ends the lane of an address that is no longer that of its Service. No lane ends before its first attempt was due.
func (w *watcher) endLane(e cluster.External, at time.Duration, reason record.ServiceState, text string) error {
	t, was := w.lanes.remove(e)
	if !was {
		return nil
	}
	if at <= t.from {
		at = t.from
		w.skip(t.lane.Name, text+", before its first attempt was due")
	}
	w.record.Event(record.Event{At: at, Object: t.lane.Name, Text: "lane " + t.lane.Name + " ends: " + text, Body: record.LaneEnd{Lane: t.lane.ID, Reason: reason}})
	w.excuseEnd(t, at)
	w.exporter.end(t)
	return w.meter.Stop(t.lane.ID, at)
}

// toldWithin is how late the API tells of a change that load balancers have applied by then, and how late the probes obey.
const toldWithin = time.Second

// endings are the classes of attempts to an address that is no longer that of its Service.
var endings = []record.Class{record.ConnectTimeout, record.Refused, record.Rejected, record.Unreachable, record.Reset, record.ReplyTimeout, record.Delayed}

// excuseEnd excuses what the lane lost between the change of its Service and its own end: this program learned of the change late, and the
// probes learn of the end later.
func (w *watcher) excuseEnd(t target, at time.Duration) {
	body := record.Excuse{Path: record.PathAll, Service: t.Service, Lane: t.lane.ID, From: max(0, at-toldWithin), Until: at + toldWithin}
	for _, c := range endings {
		body.Classes = append(body.Classes, c.String())
	}
	w.record.Event(record.Event{At: at, Object: t.Service, Text: "the address " + t.External.String() + " was no longer that of the Service, and the API told it later", Body: body})
}

// stopAll ends the lanes with the watch.
func (w *watcher) stopAll() error {
	at := w.now()
	for _, t := range w.lanes.all() {
		if err := w.meter.Stop(t.lane.ID, at); err != nil {
			return err
		}
	}
	return nil
}

// room returns why a lane cannot begin: it would get no id, or make the probes themselves fail. It is empty if it can.
func (w *watcher) room(l probes.Lane) string {
	if why := w.lanes.room(l); why != "" {
		return why
	}
	const failing = "one more lane would make the probes themselves fail: "
	limits, err := probes.LocalLimits()
	if err != nil {
		return failing + err.Error()
	}
	l.ID = 0
	all := []probes.Lane{l}
	for _, t := range w.lanes.all() {
		all = append(all, t.lane)
	}
	if reasons := probes.Preflight(all, limits); len(reasons) > 0 {
		return failing + strings.Join(reasons, "; ")
	}
	return ""
}

// refuse says that the lane of a target that waits cannot begin.
func (w *watcher) refuse(e cluster.External, wait *waiting, why string) {
	wait.refused, wait.reason = true, why
	w.remark("warning", e.String()+" is not measured: "+why)
}

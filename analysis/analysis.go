// Package analysis computes outages, their causes, the verdict and the report of a record. It is pure: the same record gives the
// same report, anywhere and at any time.
package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Analysis is a history taken apart: what all checkers and renderers look at.
type Analysis struct {
	Run      record.Run
	Events   []record.Event // in order of time
	Lanes    []*Lane        // in order of their ids
	Paths    *record.Paths
	kernel   map[kernelKey]kernelTables
	unread   map[kernelKey]time.Duration // since when a table is not read any more
	modes    map[string][]modeChange     // of each node's kube-proxies, in order of time
	choices  map[AttemptKey]choice       // what the kernel gave failed attempts
	Nodes    []string                    // 0 is the empty node: no balancer, or no node in its table
	Clients  []string                    // addresses that pods saw, see record.Attempt; 0 is the empty one
	Backends []Backend
	Phases   []Phase
	End      time.Duration // of the run
	pods     pods
	began    time.Duration // when the scenario did
	damage   []string      // what is wrong with the record itself, as sentences
	distrust string        // why the whole record is not trusted, see record.History
	seal     *record.Seal
	early    string // why the run ended early; empty for a complete run

	excuses   []*excuse
	stalls    []record.Guard         // those with a window
	excused   map[AttemptKey]*excuse // of failed attempts of measured lanes
	disturbed map[string]bool        // the nodes on which a step of the scenario acted
}

// Backend is a pod as it described itself in its answers.
type Backend struct{ Name, Node, Generation string }

// Phase is a part of the run; it lasts until the next one begins.
type Phase struct {
	Name     string
	From, To time.Duration
	record.Phase
}

// New reads a history. Only files that cannot be opened are an error; a record that is damaged, or that does not
// fit together, is told in damage, so that a report can say what is missing.
func New(h *record.History) (*Analysis, error) {
	a := newAnalysis(h.Run)
	a.distrust, a.seal = h.Distrust(), h.Seal
	if h.Seal != nil {
		a.early = h.Seal.Early
	}
	if err := a.readEvents(h); err != nil {
		return nil, err
	}
	a.pods = podsOf(a.Events)
	if err := a.readAttempts(h); err != nil {
		return nil, err
	}
	for _, l := range a.Lanes {
		l.settle()
		a.End = max(a.End, l.end)
	}
	a.readPhases()
	for _, l := range a.Lanes {
		l.Outages = outagesOf(l, a.Paths.Of(l.Frontend()), a.Nodes)
	}
	a.attribute()
	a.disturbed = a.disturbedNodes()
	a.excuseAttempts()
	return a, nil
}

func newAnalysis(run record.Run) *Analysis {
	return &Analysis{Run: run, Paths: record.NewPaths(), kernel: map[kernelKey]kernelTables{}, unread: map[kernelKey]time.Duration{},
		modes: map[string][]modeChange{}, choices: map[AttemptKey]choice{}, Nodes: []string{""}, Clients: []string{""}, Backends: []Backend{{}}}
}

func (a *Analysis) damaged(format string, args ...any) {
	const most = 10 // a broken record repeats itself
	if len(a.damage) < most {
		a.damage = append(a.damage, fmt.Sprintf(format, args...))
	}
}

func (a *Analysis) readEvents(h *record.History) error {
	for e, err := range h.Events() {
		if bad := new(record.EventError); errors.As(err, &bad) {
			a.damaged("%v", bad)
			continue
		}
		if err != nil {
			if len(a.Events) == 0 {
				return err
			}
			a.damaged("the record of events is damaged after %s: %v", units.Plural(len(a.Events), "event"), err)
			break
		}
		if !plausible(e.At) {
			a.damaged("an event (%s) at the impossible time %v", e.Kind(), e.At)
			continue
		}
		switch body := e.Body.(type) {
		case record.Flows: // evidence about attempts, and far too many to be searched as events
			a.Paths.AddFlows(body)
		case record.Choice: // likewise
			a.choices[AttemptKey{body.Lane, body.Seq}] = choice{body.Backend, e.At}
		default:
			a.Events = append(a.Events, e)
		}
	}
	a.Paths.Settle()
	slices.SortStableFunc(a.Events, func(x, y record.Event) int { return cmp.Compare(x.At, y.At) })
	for _, e := range a.Events {
		a.index(e)
	}
	slices.SortFunc(a.Lanes, func(x, y *Lane) int { return cmp.Compare(x.ID, y.ID) })
	return nil
}

// index stores lanes, memberships, kernel tables and the modes of proxies.
func (a *Analysis) index(e record.Event) {
	switch body := e.Body.(type) {
	case record.Phase:
		if e.Object == "scenario" && a.began == 0 {
			a.began = e.At
		}
	case record.Lane:
		a.declare(e.At, body)
	case record.Membership:
		a.Paths.AddMembers(e.At, body)
	case record.KernelTable:
		key, t := kernelTableOf(e, body)
		if body.State == record.TableUnread {
			a.unread[key] = e.At
			break
		}
		a.kernel[key] = append(a.kernel[key], t)
	case record.Proxy:
		a.addMode(e)
	case record.LaneEnd:
		a.endLane(e, body)
	case record.ClockBound:
		a.addClockBound(e, body)
	case record.MissingRecord:
		a.addMissing(e, body)
	case record.Excuse:
		a.addExcuse(e, body)
	case record.Guard:
		a.addStall(e, body)
	}
}

func (a *Analysis) declare(at time.Duration, declared record.Lane) {
	l, err := laneOf(at, declared)
	if err != nil {
		a.damaged("%v", err)
	} else if slices.ContainsFunc(a.Lanes, func(o *Lane) bool { return o.ID == l.ID || o.Name == l.Name }) {
		a.damaged("lane %d (%s) is declared twice", l.ID, l.Name)
	} else {
		a.Lanes = append(a.Lanes, l)
	}
}

// endLane stores the end of a lane whose Service was deleted or changed.
func (a *Analysis) endLane(e record.Event, end record.LaneEnd) {
	i := slices.IndexFunc(a.Lanes, func(l *Lane) bool { return l.ID == end.Lane })
	if i < 0 {
		a.damaged("an event at %v ends lane %d, which is not declared", e.At, end.Lane)
		return
	}
	a.Lanes[i].ended = e.At
}

func (a *Analysis) readAttempts(h *record.History) error {
	lanes := map[uint16]*Lane{}
	for _, l := range a.Lanes {
		lanes[l.ID] = l
	}
	names := namer{a: a, nodes: map[string]uint16{"": 0}, clients: map[string]uint16{"": 0}, backends: map[string]uint32{"": 0}}
	count, strange := 0, 0
	for e, err := range h.Entries() {
		if err != nil {
			if count == 0 {
				return err
			}
			a.damaged("the record of attempts is damaged after %s: %v", units.Plural(count, "attempt"), err)
			break
		}
		if e.Bucket != nil {
			n := e.Bucket.Attempts()
			count += n
			if l := lanes[e.Bucket.Lane]; l == nil || !plausibleBucket(e.Bucket) {
				strange += n
			} else {
				l.takeBucket(e.Bucket, &names)
			}
			continue
		}
		count++
		attempt := e.Attempt
		l := lanes[attempt.Lane]
		if l == nil || attempt.Seq > math.MaxUint32-1 || !plausible(attempt.Intended) || !plausible(attempt.Start) {
			strange++
			continue
		}
		l.Records = append(l.Records, names.record(l, &attempt))
	}
	if strange > 0 {
		a.damaged("%s of %d belong to no declared lane or to no possible time", units.Plural(strange, "attempt"), count)
	}
	return nil
}

// plausible keeps a damaged record from asking for a table of a billion seconds. The longest soak takes 31 days.
func plausible(at time.Duration) bool { return at >= 0 && at < 40*24*time.Hour }

// namer numbers the nodes, clients and backends in the order in which the attempts name them.
type namer struct {
	a        *Analysis
	nodes    map[string]uint16
	clients  map[string]uint16
	backends map[string]uint32
}

func (n *namer) record(l *Lane, a *record.Attempt) Sample {
	path := n.a.Paths.Path(l.DeclaredLane, a)
	if path.Node == "" && a.Backend != "" && a.Retrans == 0 && n.a.Paths.Of(l.Frontend()).Logged() {
		l.unlogged++
	}
	return Sample{Intended: a.Intended, late: saturate(a.Lateness()), total: saturate(a.Total / time.Microsecond),
		Seq: uint32(a.Seq), Class: a.Class, Terminating: a.Terminating > 0, epoch: int32(path.Epoch),
		Node: n.node(path.Node), Backend: n.backend(a.Backend, a.Node, a.Generation), Client: n.client(a.Client), N: 1, connect: saturate(l.ConnectOf(a))}
}

func (n *namer) node(name string) uint16      { return number(n.nodes, &n.a.Nodes, name) }
func (n *namer) client(address string) uint16 { return number(n.clients, &n.a.Clients, address) }

// number returns the index of a name. It adds unknown names, until there are too many for an index: those have 0.
func number(ids map[string]uint16, all *[]string, name string) uint16 {
	id, known := ids[name]
	if !known && len(*all) <= math.MaxUint16 {
		id = uint16(len(*all))
		ids[name] = id
		*all = append(*all, name)
	}
	return id
}

func (n *namer) backend(name, node, generation string) uint32 {
	id, known := n.backends[name]
	if !known {
		id = uint32(len(n.a.Backends))
		n.backends[name] = id
		n.a.Backends = append(n.a.Backends, Backend{name, node, generation})
	}
	return id
}

func (a *Analysis) readPhases() {
	for _, e := range a.Events {
		a.End = max(a.End, e.At)
		if demands, is := e.Body.(record.Phase); is {
			if n := len(a.Phases); n > 0 {
				a.Phases[n-1].To = e.At
			}
			a.Phases = append(a.Phases, Phase{Name: e.Object, From: e.At, Phase: demands})
		}
	}
	if n := len(a.Phases); n > 0 {
		a.Phases[n-1].To = a.End
	}
}

// Phase returns the first phase of that name.
func (a *Analysis) Phase(name string) (Phase, bool) {
	i := slices.IndexFunc(a.Phases, func(p Phase) bool { return p.Name == name })
	if i < 0 {
		return Phase{}, false
	}
	return a.Phases[i], true
}

// Measured are the lanes that count as the subject's; controls are those that prove the detector.
func (a *Analysis) Measured() []*Lane {
	return slices.DeleteFunc(slices.Clone(a.Lanes), func(l *Lane) bool { return l.Control })
}

func (a *Analysis) controls() []*Lane {
	return slices.DeleteFunc(slices.Clone(a.Lanes), func(l *Lane) bool { return !l.Control })
}

// Serves reports whether a pod is an endpoint of the Service of a measured lane.
func (a *Analysis) Serves(pod string) bool {
	life := a.pods.byName[pod]
	return life != nil && slices.ContainsFunc(a.Measured(), func(l *Lane) bool { return life.serves(a.serviceOf(l)) })
}

// Measures reports whether a frontend is the target of a measured lane.
func (a *Analysis) Measures(f record.Frontend) bool {
	return slices.ContainsFunc(a.Measured(), func(l *Lane) bool { return l.Frontend() == f })
}

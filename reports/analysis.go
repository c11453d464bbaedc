package reports

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// analysis is a history taken apart: what all checkers and renderers look at.
type analysis struct {
	run      record.Run
	events   []record.Event // in order of time
	lanes    []*lane        // in order of their ids
	paths    *record.Paths
	kernel   map[kernelKey]kernelTables
	modes    map[string][]modeChange      // of each node's kube-proxies, in order of time
	choices  map[choiceKey]netip.AddrPort // what the kernel gave failed attempts
	nodes    []string                     // 0 is the empty node: no balancer, or no node in its table
	backends []backend
	phases   []phase
	end      time.Duration // of the run
	pods     pods
	damage   []string // what is wrong with the record itself, as sentences
}

// backend is a pod as it described itself in its answers.
type backend struct{ name, node, generation string }

// phase is a part of the run; it lasts until the next one begins.
type phase struct {
	name     string
	from, to time.Duration
}

// analyse reads a history. Only files that cannot be opened are an error; a record that is damaged, or that does not
// fit together, is told in damage, so that a report can say what is missing.
func analyse(h *record.History) (*analysis, error) {
	a := newAnalysis(h.Run)
	if err := a.readEvents(h); err != nil {
		return nil, err
	}
	a.pods = podsOf(a.events)
	if err := a.readAttempts(h); err != nil {
		return nil, err
	}
	for _, l := range a.lanes {
		l.settle()
		a.end = max(a.end, l.end)
	}
	a.readPhases()
	for _, l := range a.lanes {
		l.outages = outagesOf(l, a.paths.Of(l.Frontend()), a.nodes)
	}
	a.attribute()
	return a, nil
}

func newAnalysis(run record.Run) *analysis {
	return &analysis{run: run, paths: record.NewPaths(), kernel: map[kernelKey]kernelTables{},
		modes: map[string][]modeChange{}, choices: map[choiceKey]netip.AddrPort{}, nodes: []string{""}, backends: []backend{{}}}
}

func (a *analysis) damaged(format string, args ...any) {
	const most = 10 // a broken record repeats itself
	if len(a.damage) < most {
		a.damage = append(a.damage, fmt.Sprintf(format, args...))
	}
}

func (a *analysis) readEvents(h *record.History) error {
	for e, err := range h.Events() {
		if bad := new(record.EventError); errors.As(err, &bad) {
			a.damaged("%v", bad)
			continue
		}
		if err != nil {
			if len(a.events) == 0 {
				return err
			}
			a.damaged("the record of events is damaged after %s: %v", plural(len(a.events), "event"), err)
			break
		}
		if !plausible(e.At) {
			a.damaged("an event (%s) at the impossible time %v", e.Kind(), e.At)
			continue
		}
		switch body := e.Body.(type) {
		case record.Flows: // evidence about attempts, and far too many to be searched as events
			a.paths.AddFlows(body)
		case record.Choice: // likewise
			a.choices[choiceKey{body.Lane, body.Seq}] = body.Backend
		default:
			a.events = append(a.events, e)
		}
	}
	a.paths.Settle()
	slices.SortStableFunc(a.events, func(x, y record.Event) int { return cmp.Compare(x.At, y.At) })
	for _, e := range a.events {
		a.index(e)
	}
	slices.SortFunc(a.lanes, func(x, y *lane) int { return cmp.Compare(x.ID, y.ID) })
	return nil
}

// index stores lanes, memberships, kernel tables and the modes of proxies.
func (a *analysis) index(e record.Event) {
	switch body := e.Body.(type) {
	case record.Lane:
		a.declare(e.At, body)
	case record.Membership:
		a.paths.AddMembers(e.At, body)
	case record.KernelTable:
		key, t := kernelTableOf(e, body)
		a.kernel[key] = append(a.kernel[key], t)
	case record.Proxy:
		a.addMode(e)
	case record.ClockBound:
		a.addClockBound(e, body)
	case record.MissingRecord:
		a.addMissing(e, body)
	}
}

func (a *analysis) declare(at time.Duration, declared record.Lane) {
	l, err := laneOf(at, declared)
	if err != nil {
		a.damaged("%v", err)
	} else if slices.ContainsFunc(a.lanes, func(o *lane) bool { return o.ID == l.ID || o.Name == l.Name }) {
		a.damaged("lane %d (%s) is declared twice", l.ID, l.Name)
	} else {
		a.lanes = append(a.lanes, l)
	}
}

func (a *analysis) readAttempts(h *record.History) error {
	lanes := map[uint16]*lane{}
	for _, l := range a.lanes {
		lanes[l.ID] = l
	}
	names := namer{a: a, nodes: map[string]uint16{"": 0}, backends: map[string]uint32{"": 0}}
	count, strange := 0, 0
	for e, err := range h.Entries() {
		if err != nil {
			if count == 0 {
				return err
			}
			a.damaged("the record of attempts is damaged after %s: %v", plural(count, "attempt"), err)
			break
		}
		if e.Bucket != nil {
			n := bucketAttempts(e.Bucket)
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
		l.records = append(l.records, names.record(l, &attempt))
	}
	if strange > 0 {
		a.damaged("%s of %d belong to no declared lane or to no possible time", plural(strange, "attempt"), count)
	}
	return nil
}

// plausible keeps a damaged record from asking for a table of a billion seconds. The longest soak takes 31 days.
func plausible(at time.Duration) bool { return at >= 0 && at < 40*24*time.Hour }

// namer numbers the nodes and backends in the order in which the attempts name them.
type namer struct {
	a        *analysis
	nodes    map[string]uint16
	backends map[string]uint32
}

func (n *namer) record(l *lane, a *record.Attempt) sample {
	path := n.a.paths.Path(l.DeclaredLane, a)
	if path.Node == "" && a.Backend != "" && a.Retrans == 0 && n.a.paths.Of(l.Frontend()).Logged() {
		l.unlogged++
	}
	return sample{intended: a.Intended, late: saturate(a.Lateness()), total: saturate(a.Total / time.Microsecond),
		seq: uint32(a.Seq), class: a.Class, terminating: a.Terminating > 0, epoch: int32(path.Epoch),
		node: n.node(path.Node), backend: n.backend(a.Backend, a.Node, a.Generation), n: 1, connect: saturate(l.ConnectOf(a))}
}

func (n *namer) node(name string) uint16 {
	id, known := n.nodes[name]
	if !known && len(n.a.nodes) <= math.MaxUint16 {
		id = uint16(len(n.a.nodes))
		n.nodes[name] = id
		n.a.nodes = append(n.a.nodes, name)
	}
	return id
}

func (n *namer) backend(name, node, generation string) uint32 {
	id, known := n.backends[name]
	if !known {
		id = uint32(len(n.a.backends))
		n.backends[name] = id
		n.a.backends = append(n.a.backends, backend{name, node, generation})
	}
	return id
}

func (a *analysis) readPhases() {
	for _, e := range a.events {
		a.end = max(a.end, e.At)
		if _, is := e.Body.(record.Phase); is {
			if n := len(a.phases); n > 0 {
				a.phases[n-1].to = e.At
			}
			a.phases = append(a.phases, phase{name: e.Object, from: e.At})
		}
	}
	if n := len(a.phases); n > 0 {
		a.phases[n-1].to = a.end
	}
}

// phase returns the first phase of that name.
func (a *analysis) phase(name string) (phase, bool) {
	i := slices.IndexFunc(a.phases, func(p phase) bool { return p.name == name })
	if i < 0 {
		return phase{}, false
	}
	return a.phases[i], true
}

// measured are the lanes that count as the subject's; controls are those that prove the detector.
func (a *analysis) measured() []*lane {
	return slices.DeleteFunc(slices.Clone(a.lanes), func(l *lane) bool { return l.Control })
}

func (a *analysis) controls() []*lane {
	return slices.DeleteFunc(slices.Clone(a.lanes), func(l *lane) bool { return !l.Control })
}

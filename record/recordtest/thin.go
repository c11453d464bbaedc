package recordtest

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// Thinned writes the lab's record in the order in which a run records it: events that much after they happened, an outcome
// when it is known.
func (s *Lab) Thinned(t testing.TB, late time.Duration) *record.History {
	t.Helper()
	type told struct {
		at time.Duration
		do func(*record.HistoryWriter)
	}
	var all []told
	for _, e := range s.Events {
		all = append(all, told{e.At + late, func(w *record.HistoryWriter) { w.Event(e.typed(t)) }})
	}
	for _, a := range s.Attempts {
		all = append(all, told{a.Start + a.Total, func(w *record.HistoryWriter) { w.Attempt(a) }})
	}
	slices.SortStableFunc(all, func(x, y told) int { return cmp.Compare(x.at, y.at) })
	run := s.Run
	run.Record = record.RecordThinned
	dir := t.TempDir()
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), run)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		x.do(w)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Remake makes the attempts again, with the faults as they are now.
func (s *Lab) Remake() {
	l := Lane{ID: 0, Name: "web", Target: WebAddress}
	for i := range s.Events {
		if e := &s.Events[i]; e.Kind == record.KindLane {
			l.Protocol = e.Attrs["protocol"]
			_, _ = fmt.Sscan(e.Attrs["rate"], &l.Rate)
		}
	}
	if len(s.Attempts) == 0 {
		return
	}
	l.From, l.To = s.Attempts[0].Intended, s.Attempts[len(s.Attempts)-1].Intended+1
	s.Events = slices.DeleteFunc(s.Events, func(e Event) bool { return e.Kind == record.KindLane || e.Kind == record.KindFlows })
	s.Attempts, s.stuck = nil, nil
	if s.Log != nil {
		s.Log = &BalancerLog{}
	}
	s.Probe(l)
}

// Calm is a minute at 200 a second with one outage in its middle.
func Calm() *Lab {
	s := NewLab(9)
	s.Services[WebAddress] = &Service{Name: "web", Seed: 7, Local: true}
	for i, node := range NodeNames {
		s.Pod(Pod{Name: "web-" + node, Node: node, Address: fmt.Sprintf("10.244.0.%d", i+1), Service: "web", Ready: 100 * time.Millisecond})
	}
	s.Balance(WebAddress, 200*time.Millisecond, NodeNames...)
	s.Phase("baseline", time.Second)
	s.Phase("scenario", 5*time.Second)
	s.Step("watch", 5*time.Second, 55*time.Second)
	s.Phase("end", time.Minute)
	s.Faults = []Fault{{Node: "node-2", AnyLane: true, From: 30 * time.Second, To: 30*time.Second + 200*time.Millisecond, Class: record.Refused}}
	s.Probe(Lane{ID: 1, Name: "web", Target: WebAddress, Rate: 200, From: time.Second, To: time.Minute})
	return s
}

package probes

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

func TestGuardsRejectLaneOverBudget(t *testing.T) {
	var events []record.Event
	g := NewGuards(Limits{ConntrackMax: 50_000, Descriptors: 1 << 20}, nil, func(e record.Event) { events = append(events, e) })
	one, two := testLane(150), testLane(150)
	two.ID = 2
	if err := g.Start(one, 0); err != nil || len(events) > 0 {
		t.Fatalf("a lane that fits: %v, %v", err, events)
	}
	if err := g.Start(two, time.Second); err == nil || !strings.Contains(err.Error(), "conntrack") {
		t.Errorf("lanes that do not fit together: %v", err)
	}
	if len(events) != 1 || events[0].Kind() != record.KindGuard || events[0].Object != "conntrack" || events[0].At != time.Second {
		t.Errorf("%+v, want one guard about conntrack", events)
	}
	g.Stop(one.ID)
	if err := g.Start(two, 2*time.Second); err != nil {
		t.Errorf("alone it fits: %v", err)
	}
}

func TestGuardCheckInterval(t *testing.T) {
	for _, test := range []struct {
		rate float64
		want time.Duration
	}{{0.1, maxCheckInterval}, {100, 65536 / 2 * time.Second / 1000}, {5000, minCheckInterval}} {
		g := NewGuards(Limits{ConntrackMax: 65536}, nil, nil)
		l := testLane(test.rate)
		l.Close = CloseRST
		g.running = []Lane{l}
		if got := g.checkInterval(); got != test.want {
			t.Errorf("at %v/s every %v, want %v", test.rate, got, test.want)
		}
	}
}

func TestGuardsCheckWhileLanesRun(t *testing.T) {
	var events []record.Event
	tracked, checks := 50, 0
	fine := Namespace{"node-1", func() (int, error) { checks++; return tracked, nil }}
	broken := Namespace{"node-2", func() (int, error) { return 0, errors.New("gone") }}
	g := NewGuards(Limits{ConntrackMax: 100}, []Namespace{fine, broken}, func(e record.Event) { events = append(events, e) })
	l := testLane(0.2) // fills the table in 250 s, if no entry expires
	l.Close = CloseRST
	if err := g.Start(l, 0); err != nil {
		t.Fatal(err)
	}
	for at := time.Duration(0); at <= 60*time.Second; at += 100 * time.Millisecond {
		g.Check(at)
	}
	if checks != 2 || len(events) != 1 || events[0].Node != "node-2" {
		t.Fatalf("%d checks in 60 s, %+v; want 2, and one guard of the namespace that cannot be counted", checks, events)
	}
	tracked = 51
	g.Check(75 * time.Second)
	g.Check(100 * time.Second)
	if len(events) != 2 || events[1].Node != "node-1" || !strings.Contains(events[1].Text, "51 entries") {
		t.Errorf("%+v, want one more guard of node-1", events)
	}
}

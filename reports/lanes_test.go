package reports

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hitless/hitless/record"
)

func lanesOf(t *testing.T, s *lab) string {
	t.Helper()
	var b bytes.Buffer
	h, r, _ := s.built(t)
	if err := WriteLanes(&b, r, h); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The columns of a path show when it dropped: a fault of 3 s on one node makes three or four of them, on that line alone.
func TestLanesShowWhenAPathDropped(t *testing.T) {
	o := rolling{seed: 2, fallback: true, rollouts: 1}
	s := o.lab()
	s.faults = append(s.faults, fault{anyLane: true, node: "node-2", from: scenarioAt + 10*time.Second, to: scenarioAt + 13*time.Second, class: record.Refused})
	text := lanesOf(t, o.start(s))
	for line := range strings.Lines(text) {
		n := strings.Count(line, "▓")
		switch {
		case strings.HasPrefix(line, "node-2") && (n < 3 || n > 4 || strings.Index(line, "▓") < len("node-2  ")):
			t.Errorf("node-2 dropped in %d columns:\n%s", n, text)
		case strings.HasPrefix(line, "node-1") && n > 0:
			t.Errorf("node-1 dropped:\n%s", text)
		}
		if utf8.RuneCountInString(line) > 110 {
			t.Errorf("a line is too long: %s", line)
		}
	}
	if !strings.Contains(text, "▓ dropped") || !strings.Contains(text, "|roll out generation 2") {
		t.Errorf("what was done and what it means is missing:\n%s", text)
	}
}

// Much that happens at once does not make the picture long, and days are drawn as well as seconds.
func TestLanesStayShort(t *testing.T) {
	o := rolling{seed: 2, fallback: true, rollouts: 40}
	s := o.lab()
	for i := range 300 {
		s.step("a step of very many", scenarioAt+time.Duration(i)*time.Second, scenarioAt+time.Duration(i+1)*time.Second)
	}
	o.rate = 5
	if lines := strings.Split(lanesOf(t, o.start(s)), "\n"); len(lines) > 18 || !strings.Contains(strings.Join(lines, "\n"), "events more") {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

func TestARunWithoutItsScenarioHasNoLanes(t *testing.T) {
	s := newLab(1)
	s.services[webAddress] = &service{name: "default/web", seed: 7}
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 10, from: 3 * time.Second, to: 5 * time.Second})
	if text := lanesOf(t, s); !strings.Contains(text, "never began") {
		t.Errorf("%q", text)
	}
}

// A thinned record, in which a bucket stands for the good attempts of a second, is drawn as the whole one.
func TestTheLanesOfAThinnedRecordAreThoseOfTheWhole(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		o := rolling{seed: seed, fallback: true, rollouts: 2, rate: 12}
		s := o.lab()
		for i := range s.events {
			if e := &s.events[i]; e.Kind() == record.KindPhase && e.Object == "scenario" {
				e.At += time.Duration(seed) * 220 * time.Millisecond
			}
		}
		o.start(s)
		whole := lanesOf(t, s)
		h := s.thinned(t, 0)
		if _, bucketed := kept(t, h); bucketed == 0 {
			t.Fatal("nothing was thinned")
		}
		r, err := Build(h)
		if err != nil {
			t.Fatal(err)
		}
		var thin bytes.Buffer
		if err := WriteLanes(&thin, r, h); err != nil {
			t.Fatal(err)
		}
		if whole != thin.String() {
			t.Errorf("seed %d:\n%s\nthinned:\n%s", seed, whole, thin.String())
		}
	}
}

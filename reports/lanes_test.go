package reports

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

func lanesOf(t *testing.T, s *recordtest.Lab) string {
	t.Helper()
	var b bytes.Buffer
	h, r, _ := built(t, s)
	if err := WriteLanes(&b, r, h); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The columns of a path show when it dropped: a fault of 3 s on one node makes three or four of them, on that line alone.
func TestLanesShowWhenAPathDropped(t *testing.T) {
	o := recordtest.Rollout{Seed: 2, Fallback: true, Rollouts: 1}
	s := o.Lab()
	s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: recordtest.ScenarioAt + 10*time.Second, To: recordtest.ScenarioAt + 13*time.Second, Class: record.Refused})
	text := lanesOf(t, o.Start(s))
	rows := map[string]int{}
	for line := range strings.Lines(text) {
		n := strings.Count(line, "▓")
		switch {
		case strings.HasPrefix(line, "node-2"):
			if rows["node-2"]++; n < 3 || n > 4 || strings.Index(line, "▓") < len("node-2  ") {
				t.Errorf("node-2 dropped in %d columns:\n%s", n, text)
			}
		case strings.HasPrefix(line, "node-1"):
			if rows["node-1"]++; n > 0 {
				t.Errorf("node-1 dropped:\n%s", text)
			}
		}
		if utf8.RuneCountInString(line) > 110 {
			t.Errorf("a line is too long: %s", line)
		}
	}
	if rows["node-1"] == 0 || rows["node-1"] != rows["node-2"] {
		t.Errorf("rows of the nodes: %v\n%s", rows, text)
	}
	if !strings.Contains(text, "▓ dropped") || !strings.Contains(text, "|roll out generation 2") {
		t.Errorf("what was done and what it means is missing:\n%s", text)
	}
}

// Much that happens at once does not make the picture long, and days are drawn as well as seconds.
func TestLanesStayShort(t *testing.T) {
	o := recordtest.Rollout{Seed: 2, Fallback: true, Rollouts: 40}
	s := o.Lab()
	for i := range 300 {
		s.Step("a step of very many", recordtest.ScenarioAt+time.Duration(i)*time.Second, recordtest.ScenarioAt+time.Duration(i+1)*time.Second)
	}
	o.Rate = 5
	if lines := strings.Split(lanesOf(t, o.Start(s)), "\n"); len(lines) > 18 || !strings.Contains(strings.Join(lines, "\n"), "events more") {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// Scenarios of any length are drawn until their ends, in the same number of columns.
func TestLanesHaveTheWholeScenario(t *testing.T) {
	for seconds := time.Duration(1); seconds < 3e6; seconds += 1 + seconds/50 {
		for _, zero := range []time.Duration{0, time.Second, 20 * time.Second} {
			if x := lanesAxis(zero, zero+seconds*time.Second); x.Buckets > lanesWidth || x.To <= zero+seconds*time.Second || x.To != x.Start(x.Buckets) {
				t.Fatalf("a scenario of %d s from %v on has %d columns of %v, until %v", seconds, zero, x.Buckets, x.Step, x.To)
			}
		}
	}
	if x := lanesAxis(20*time.Second, 594*time.Second); x.To <= 594*time.Second {
		t.Errorf("the columns of 574 s end at %v", x.To)
	}
}

func TestARunWithoutItsScenarioHasNoLanes(t *testing.T) {
	s := recordtest.NewLab(1)
	s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "default/web", Seed: 7}
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 10, From: 3 * time.Second, To: 5 * time.Second})
	if text := lanesOf(t, s); !strings.Contains(text, "never began") {
		t.Errorf("%q", text)
	}
}

// A thinned record, in which a bucket stands for the good attempts of a second, is drawn as the whole one.
func TestTheLanesOfAThinnedRecordAreThoseOfTheWhole(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		o := recordtest.Rollout{Seed: seed, Fallback: true, Rollouts: 2, Rate: 12}
		s := o.Lab()
		for i := range s.Events {
			if e := &s.Events[i]; e.Kind == record.KindPhase && e.Object == "scenario" {
				e.At += time.Duration(seed) * 220 * time.Millisecond
			}
		}
		o.Start(s)
		whole := lanesOf(t, s)
		h := s.Thinned(t, 0)
		if _, bucketed := kept(t, h); bucketed == 0 {
			t.Fatal("nothing was thinned")
		}
		r, err := analysis.Build(h)
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

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

// Each pod that answered has a line: the old pod answers before the new one, and never after its end. More pods than fit have none.
func TestLanesShowWhichPodsAnswered(t *testing.T) {
	for rollouts, want := range map[int]int{1: 2, 3: 4, 8: 0} {
		o := recordtest.Rollout{Seed: 3, Fallback: true, Rollouts: rollouts}
		text := lanesOf(t, o.Start(o.Lab()))
		var pods []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "  by web-") {
				pods = append(pods, line)
			}
		}
		if len(pods) != want {
			t.Errorf("%d lines of pods in a run with %d rollouts, want %d:\n%s", len(pods), rollouts, want, text)
		}
		for i := 1; i < len(pods); i++ {
			if strings.Index(pods[i-1], "■") >= strings.Index(pods[i], "■") || utf8.RuneCountInString(pods[i-1]) >= utf8.RuneCountInString(pods[i]) {
				t.Errorf("the pods did not answer one after the other:\n%s", text)
			}
		}
	}
}

// The steps of a proof in the middle of a scenario are no part of the drawing; those before and after it are.
func TestLanesLeaveOutTheProof(t *testing.T) {
	o := recordtest.Rollout{Seed: 3, Fallback: true, Rollouts: 1}
	s := o.Lab()
	at := func(seconds int) time.Duration { return recordtest.ScenarioAt + time.Duration(seconds)*time.Second }
	for i, name := range []string{"before", "proof-2-1: drop for 100ms on canary", "after"} {
		s.Step(name, at(3*i+1), at(3*i+2))
	}
	for second, state := range map[int]string{3: "begin", 6: "end"} {
		s.Event(at(second), record.KindProof, "", "proof 2", "proof 2", "state", state, "number", "2", "kinds", "tcp-new")
	}
	if text := lanesOf(t, o.Start(s)); strings.Contains(text, "proof-2") || !strings.Contains(text, "|before") || !strings.Contains(text, "|after") {
		t.Error(text)
	}
}

// Where not all events have room, the steps have it.
func TestLanesPreferSteps(t *testing.T) {
	o := recordtest.Rollout{Seed: 3, Fallback: true, Rollouts: 3}
	s := o.Lab()
	for i := range 5 {
		s.Step("step", recordtest.ScenarioAt+time.Duration(i)*time.Second, recordtest.ScenarioAt+time.Duration(i+1)*time.Second)
	}
	text := lanesOf(t, o.Start(s))
	if !strings.Contains(text, "events more") || strings.Count(text, "|step") != 5 || strings.Count(text, "|roll out") != 3 {
		t.Error(text)
	}
}

// A control lane to a port without a Service is a part of the drawing, and the lanes of the proof are none.
func TestLanesHaveThoseWithoutAService(t *testing.T) {
	for role, want := range map[string]bool{record.RoleUnserved: true, "": false} {
		o := recordtest.Rollout{Seed: 3, Fallback: true, Rollouts: 1}
		s := o.Start(o.Lab())
		s.Probe(recordtest.Lane{ID: 9, Name: "other", Target: recordtest.CanaryAddress, Rate: 10, From: recordtest.ScenarioAt, To: recordtest.ScenarioAt + 5*time.Second, Control: true})
		for i := range s.Events {
			if e := &s.Events[i]; e.Kind == record.KindLane && e.Attrs["name"] == "other" && role != "" {
				e.Attrs["role"] = role
			}
		}
		if text := lanesOf(t, s); strings.Contains(text, "\nother node-") != want {
			t.Errorf("role %q:\n%s", role, text)
		}
	}
}

// The answer to an ARP request has a mark of its own: no lane shows it.
func TestLanesTellWhoAnswersARP(t *testing.T) {
	o := recordtest.Rollout{Seed: 3, Fallback: true, Rollouts: 1}
	s := o.Lab()
	s.Event(recordtest.ScenarioAt+time.Second, record.KindCheck, "", "203.0.113.10", "", "client", "load balancer", "target", record.ARPTarget+"203.0.113.10", "want", "", "got", "node-1 node-2")
	if text := lanesOf(t, o.Start(s)); !strings.Contains(text, "|ARP answered by node-1 node-2") {
		t.Error(text)
	}
}

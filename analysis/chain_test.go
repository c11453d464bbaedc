package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// Each edge is about a clause of the cause, joins two instants in their order, and has the number of its place in the text.
func TestEdgesAreThoseOfTheCause(t *testing.T) {
	r := reportOf(t, recordtest.Failing().Start(recordtest.Failing().Lab()))
	outages := r.AllOutages()
	if len(outages) == 0 {
		t.Fatal("nothing to explain")
	}
	for _, o := range outages {
		if len(o.Edges) != 3 {
			t.Fatalf("%d edges, want cause, failed check and removal: %+v", len(o.Edges), o.Edges)
		}
		last := -1
		for i, e := range o.Edges {
			at := strings.Index(o.Cause.Text, e.Clause)
			if e.Number != i+1 || at <= last {
				t.Errorf("edge %d: number %d, clause %q at %d of %q", i, e.Number, e.Clause, at, o.Cause.Text)
			}
			last = at
			if !slices.Contains(StateKinds(), e.From.State) || !slices.Contains(StateKinds(), e.To.State) {
				t.Errorf("edge %d is on no row of states: %+v", i, e)
			}
		}
		if first := o.Edges[0]; first.From.State != StatePod || first.To.At != o.From || first.From.At > first.To.At {
			t.Errorf("the first edge does not lead from the pod to the first failure: %+v", first)
		}
		if end := o.Edges[2]; end.From.State != StateBalancer || end.To.At != o.To || o.Edges[1].From.State != StateHealth {
			t.Errorf("the last edges do not lead to the last failure: %+v", o.Edges[1:])
		}
		if o.Cause.Why()+"; "+o.Cause.Ended != o.Cause.Text || strings.Contains(o.Cause.Why(), "it ended when") {
			t.Errorf("cause %q and end %q are not the text %q", o.Cause.Why(), o.Cause.Ended, o.Cause.Text)
		}
	}
	if a, b := outages[0].Cause.Kind, outages[1].Cause.Kind; a != b || strings.Contains(a, "node-") || strings.Contains(a, "web-") {
		t.Errorf("two outages of one cause are of the kinds %q and %q", a, b)
	}
}

// The twin: an outage that nothing explains has no edge, and another kind.
func TestAnUnexplainedOutageHasNoEdge(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	s.Faults = append(s.Faults, recordtest.Fault{Node: "node-1", From: 21 * time.Second, To: 22 * time.Second, Class: record.Reset})
	outages := reportOf(t, o.Start(s)).AllOutages()
	if len(outages) != 1 {
		t.Fatalf("%d outages: %+v", len(outages), outages)
	}
	if o := outages[0]; o.Cause.Event != "" || len(o.Edges) != 0 || o.Cause.Kind != unexplainedKind {
		t.Errorf("%+v", o)
	}
}

func TestAClusterHasMoreNodesThanCarriedTraffic(t *testing.T) {
	r := reportOf(t, recordtest.Calm())
	used := r.nodeCount()
	for nodes, want := range map[int]string{0: units.Plural(used, "node"), used: units.Plural(used, "node"), used + 2: units.Plural(used+2, "node") + ", "} {
		r.Run.Nodes = nodes
		if text := r.NodesText(); !strings.HasPrefix(text, want) || strings.Contains(text, "carried traffic") != (nodes > used) {
			t.Errorf("%d nodes, %d with traffic: %q", nodes, used, text)
		}
	}
}

// One of a kind is singular, and what is not explained is called so.
func TestNumbersAgreeWithTheirNouns(t *testing.T) {
	since := 1.0
	for more, want := range map[int][2]string{1: {"1 loss more", "1 more node do not"}, 2: {"2 losses more", "2 more nodes do not"}} {
		r := &Report{Excused: make([]ExcusedReport, mostExcuses+more), Recovery: &RecoveryReport{}}
		for range mostUnchecked + more {
			r.Recovery.Nodes = append(r.Recovery.Nodes, NodeRecovery{Node: "n", State: RecoveryFailed, Since: &since})
		}
		texts := r.ExcuseTexts()
		if last := texts[len(texts)-1]; last != "excused: "+want[0] || !strings.Contains(r.Recovery.clause(), want[1]) {
			t.Errorf("%q and %q, want %q and %q", last, r.Recovery.clause(), want[0], want[1])
		}
	}
	for _, c := range []struct {
		failed, unexplained int
		want                string
	}{{0, 0, "none"}, {89, 0, "all 89 explained"}, {89, 89, "89 of 89 failed connections are unexplained (100.0 %)"}, {4, 1, "1 of 4 failed connections is unexplained (25.0 %)"},
		{1, 1, "1 of 1 failed connection is unexplained (100.0 %)"}} {
		r := &Report{Totals: Totals{Attempts: 100, Dropped: c.failed}, Unexplained: Unexplained{c.unexplained, float64(c.unexplained) / float64(max(1, c.failed))}}
		if text := r.UnexplainedText(); text != c.want {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}

// Without an attempt there is no result, also none of zero losses.
func TestARunWithoutAttemptsMeasuredNothing(t *testing.T) {
	r := &Report{Verdict: Invalid, Early: &EarlyReport{At: 3, Reason: record.Interrupted}}
	for _, text := range []string{r.Headline(), r.Claim(), r.Sentence(), r.UnexplainedText()} {
		if !strings.Contains(text, "no connection was measured") || strings.Contains(text, "0 of 0") {
			t.Errorf("%q", text)
		}
	}
}

// The headline says how many connections were dropped, in how many outages, and how long; the cause is no part of it.
func TestTheHeadlineIsShort(t *testing.T) {
	r := reportOf(t, recordtest.Failing().Start(recordtest.Failing().Lab()))
	text := r.Headline()
	for _, want := range []string{units.Thousands(r.Totals.Dropped) + " of " + units.Thousands(r.Totals.Attempts) + " connections dropped in 2 outages", "longest", r.Worst().Node} {
		if !strings.Contains(text, want) {
			t.Errorf("the headline %q lacks %q", text, want)
		}
	}
	if len(text) > 100 || strings.Contains(text, "terminating") || r.UnexplainedText() != "all "+units.Thousands(r.Totals.Dropped)+" explained" {
		t.Errorf("headline %q, unexplained %q", text, r.UnexplainedText())
	}
}

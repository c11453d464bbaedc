package budget

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

const (
	off    = recordtest.OffAt
	out    = off + 18*time.Second // the load balancer removes node-2
	over   = off + recordtest.ExcusedFor
	second = time.Second
)

// loss adds losses, or other changes, to a run in which node-2 loses power at 40 s.
type (
	lab  = *recordtest.Lab
	loss func(s lab)
)

// excused is the excuse for the power-off: 20 s over node-2.
func excused(s *recordtest.Lab) {
	s.Excuse(record.PathNode, "node-2", off, over, 0)
}

// fails makes attempts over a node fail.
func fails(node string, from, to time.Duration, class record.Class) loss {
	return func(s *recordtest.Lab) { s.Lose(node, from, to, class) }
}

// dark is what the power-off takes: connections over node-2 until the load balancer removes it.
var dark = fails("node-2", off, out, record.ConnectTimeout)

// history makes a record.
func history(t testing.TB, leftAt time.Duration, losses ...loss) *record.History {
	t.Helper()
	s := recordtest.Disturbed(leftAt)
	for _, l := range losses {
		l(s)
	}
	if len(s.Attempts) == 0 {
		s.Measure()
	}
	return s.Write(t)
}

// judge judges a record by the text of a budget, "" for the record's own.
func judge(t testing.TB, h *record.History, text string) (*analysis.Report, error) {
	t.Helper()
	if text == "" {
		return analysis.Build(h)
	}
	f, err := Load(t.Context(), testfiles.Write(t, t.TempDir(), "budget.yaml", []byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	return f.Judge(h)
}

const all = "dropped: 100000\ndelayed: 100000\n"

// The verdicts were agreed on before the code: what a careful person says of this record with this budget.
func TestVerdictsOfBudgets(t *testing.T) {
	pods := func(backend string) loss { // 1 of 9 connections over the other nodes meets the pod on node-2
		return func(s *recordtest.Lab) {
			s.Excuse(record.PathPods, "node-2", off, off+30*second, 1.0/3)
			s.Lose("node-1", off+5*second, off+6*second, record.ConnectTimeout)
			s.Measure()
			if backend != "" {
				s.Choose(func(int) (node, address string, asked bool) { return "", backend, true })
			}
		}
	}
	two := func(s *recordtest.Lab) { // outages of 3 s each
		s.Lose("node-2", off, off+3*second, record.ConnectTimeout)
		s.Lose("node-2", off+10*second, off+13*second, record.ConnectTimeout)
	}
	noNode := func(s *recordtest.Lab) {
		s.Balance(recordtest.WebAddress, off+20*second)
		s.Balance(recordtest.WebAddress, off+25*second, "node-1", "node-3")
		s.Excuse(record.PathNone, "", off+20*second, off+26*second, 0, record.Rejected)
	}
	for _, c := range []struct {
		name   string
		left   time.Duration // when the load balancer removes node-2; out when 0
		losses []loss
		budget string
		want   analysis.Verdict
		reason string
	}{
		{name: "no loss", want: analysis.Pass},
		{name: "all in the window, on the node", losses: []loss{excused, dark}, want: analysis.Pass, reason: "excused: "},
		{name: "the same without an excuse", losses: []loss{dark}, want: analysis.Fail},
		{name: "until the very end of the window", left: off + 25*second, losses: []loss{excused, fails("node-2", off, over, record.ConnectTimeout)}, want: analysis.Pass},
		{name: "a few attempts after the window", left: off + 25*second, losses: []loss{excused, fails("node-2", off, over+60*time.Millisecond, record.ConnectTimeout)}, want: analysis.Fail},
		{name: "before the window", losses: []loss{excused, dark, fails("node-2", off-300*time.Millisecond, off, record.ConnectTimeout)}, want: analysis.Fail},
		{name: "on another node too", losses: []loss{excused, dark, fails("node-3", off+second, off+1100*time.Millisecond, record.ConnectTimeout)}, want: analysis.Fail},
		{name: "only on another node", losses: []loss{excused, fails("node-3", off+second, off+2*second, record.ConnectTimeout)}, want: analysis.Fail},
		{name: "wrong pods answer", losses: []loss{excused, fails("node-2", off, out, record.Misrouted)}, want: analysis.Fail},
		{name: "a class that the excuse lacks", losses: []loss{excused, fails("node-2", off, out, record.Rejected)}, want: analysis.Fail},
		{name: "delayed in the window", losses: []loss{excused, fails("node-2", off, out, record.Delayed)}, want: analysis.Pass},
		{name: "the excuse of another Service", losses: []loss{dark, func(s *recordtest.Lab) {
			excused(s)
			s.Events[len(s.Events)-1].Attrs["service"] = "default/other"
		}}, want: analysis.Fail},
		{name: "an excuse for wrong pods is no record", losses: []loss{dark, func(s *recordtest.Lab) {
			s.Excuse(record.PathNode, "node-2", off, over, 0, record.ConnectTimeout, record.Misrouted)
		}}, want: analysis.Invalid},
		{name: "no node in the load balancer", losses: []loss{noNode}, want: analysis.Pass},
		{name: "the same over a node", losses: []loss{noNode, fails("node-1", off+21*second, off+25500*time.Millisecond, record.Rejected)}, want: analysis.Fail},

		{name: "connections to the dead pod", losses: []loss{excused, dark, pods("10.244.2.9:8080")}, want: analysis.Pass},
		{name: "connections to another pod", losses: []loss{excused, dark, pods("10.244.3.9:8080")}, want: analysis.Fail},
		{name: "within the share of the dead pod, without choices of the kernel", losses: []loss{excused, dark, pods("")}, want: analysis.Pass},
		{name: "more than the share of the dead pod", losses: []loss{excused, dark, fails("", off+7*second, off+30*second, record.ConnectTimeout), pods("")}, want: analysis.Fail},

		{name: "counts as before", losses: []loss{dark}, budget: "dropped: 1000\n", want: analysis.Pass},
		{name: "counts of what is not excused", losses: []loss{excused, dark, fails("node-3", off+second, off+1100*time.Millisecond, record.Refused)}, budget: "dropped: 10\n", want: analysis.Pass},
		{name: "counts that are too small", losses: []loss{dark}, budget: "dropped: 10\n", want: analysis.Fail, reason: "the budget allows 10"},

		{name: "a rule for the role", losses: []loss{dark}, budget: "rules: [{role: disturbed, dropped: 1000}]", want: analysis.Pass, reason: "rule 1 of the budget (role: disturbed) covers"},
		{name: "a rule for the role, loss elsewhere", losses: []loss{dark, fails("node-3", off, off+second, record.ConnectTimeout)}, budget: "rules: [{role: disturbed, dropped: 1000}]",
			want: analysis.Fail, reason: "connections that no rule covers were dropped"},
		{name: "a rule for the other role", losses: []loss{dark}, budget: "rules: [{role: other, dropped: 1000}]", want: analysis.Fail},
		{name: "a rule for the node", losses: []loss{dark}, budget: "rules: [{node: node-2, dropped: 1000}]", want: analysis.Pass},
		{name: "a rule for another node", losses: []loss{dark}, budget: "rules: [{node: node-3, dropped: 1000}]", want: analysis.Fail},
		{name: "a rule for the class", losses: []loss{dark}, budget: "rules: [{class: connect-timeout, dropped: 1000}]", want: analysis.Pass},
		{name: "a rule for another class", losses: []loss{dark}, budget: "rules: [{class: refused, dropped: 1000}]", want: analysis.Fail},
		{name: "a rule for the lane", losses: []loss{dark}, budget: "rules: [{lane: web, dropped: 1000}]", want: analysis.Pass},
		{name: "a rule for the cause", losses: []loss{dark}, budget: "rules: [{cause: node off, dropped: 1000}]", want: analysis.Pass},
		{name: "a rule for another cause", losses: []loss{dark}, budget: "rules: [{cause: proxy killed, dropped: 1000}]", want: analysis.Fail},
		{name: "a rule for the scenario", losses: []loss{dark}, budget: "rules: [{scenario: drain, dropped: 1000}]", want: analysis.Pass},
		{name: "a rule for another scenario", losses: []loss{dark}, budget: "rules: [{scenario: rollout, lane: tcp-new, dropped: 1000}]", want: analysis.Fail},
		{name: "a rule for delayed ones alone", losses: []loss{dark}, budget: "rules: [{node: node-2, delayed: 1000}]", want: analysis.Fail, reason: "rule 1 of the budget (node: node-2) allows 0"},
		{name: "a rule for all, too small", losses: []loss{dark}, budget: "rules: [{dropped: 10}]", want: analysis.Fail, reason: "(everything) allows 10"},

		{name: "a gap that is long enough", losses: []loss{dark}, budget: "rules: [{node: node-2, longestGap: 19s}]", want: analysis.Pass},
		{name: "a gap that is too long", losses: []loss{dark}, budget: "rules: [{node: node-2, longestGap: 17s}]", want: analysis.Fail, reason: "lasted up to"},
		{name: "two short gaps", losses: []loss{two}, budget: "rules: [{node: node-2, longestGap: 4s}]", want: analysis.Pass},
		{name: "two short gaps, too long together", losses: []loss{two}, budget: "rules: [{node: node-2, longestGap: 4s, outage: 5s}]", want: analysis.Fail, reason: "together"},
		{name: "two short gaps together", losses: []loss{two}, budget: "rules: [{node: node-2, outage: 7s}]", want: analysis.Pass},
		{name: "outages of two paths at the same time", losses: []loss{fails("", off, off+3*second, record.ConnectTimeout)}, budget: "rules: [{outage: 4s}]", want: analysis.Pass},

		{name: "the first rule that selects decides", losses: []loss{dark}, budget: "rules: [{class: connect-timeout, dropped: 0}, {node: node-2, dropped: 1000}]", want: analysis.Fail},
		{name: "the first rule that selects decides, otherwise", losses: []loss{dark}, budget: "rules: [{node: node-2, dropped: 1000}, {class: connect-timeout, dropped: 0}]", want: analysis.Pass},
		{name: "a rule and the rest", losses: []loss{dark, fails("node-3", off, off+100*time.Millisecond, record.Refused)}, budget: "dropped: 10\nrules: [{node: node-2, longestGap: 19s}]", want: analysis.Pass},

		{name: "fast enough", budget: "rules: [{lane: web, p99: 10ms}]", want: analysis.Pass},
		{name: "too slow", budget: "rules: [{lane: web, p99: 50us}]", want: analysis.Fail, reason: "(p99) until connected"},
		{name: "a p99 covers no loss", losses: []loss{dark}, budget: "rules: [{p99: 10s}]", want: analysis.Fail},
		{name: "loss in the baseline is not excused", losses: []loss{fails("node-2", 10*second, 10100*time.Millisecond, record.ConnectTimeout), func(s *recordtest.Lab) {
			s.Excuse(record.PathNode, "node-2", off, over, 0)
		}}, want: analysis.Fail, reason: "faulty from the start"},
		{name: "a budget makes no untrusted record valid", losses: []loss{dark, func(s *recordtest.Lab) {
			s.Event(off, record.KindGuard, "", "conntrack", "the table is full")
		}}, budget: all, want: analysis.Invalid},
	} {
		left := c.left
		if left == 0 {
			left = out
		}
		r, err := judge(t, history(t, left, c.losses...), c.budget)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if r.Verdict != c.want || !strings.Contains(strings.Join(r.Reasons, "\n"), c.reason) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, r.Verdict, r.Reasons, c.want, c.reason)
		}
	}
}

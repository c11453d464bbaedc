package budget

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// generated is a run with losses and a budget of limits that a record may meet or exceed.
type generated struct {
	losses []lossRange
	rules  []record.BudgetRule
	rest   record.Budget
}

// lossRange makes each good attempt of the lane web fail that starts in a time.
type lossRange struct {
	from, length time.Duration
	class        record.Class
}

var failures = []record.Class{record.ConnectTimeout, record.Refused, record.Delayed, record.Misrouted}

func anyLoss(t *rapid.T) lossRange {
	return lossRange{from: time.Duration(rapid.IntRange(26, 75).Draw(t, "from")) * time.Second, length: time.Duration(rapid.IntRange(1, 40).Draw(t, "tenths")) * 100 * time.Millisecond,
		class: rapid.SampledFrom(failures).Draw(t, "class")}
}

// anyRule selects by anything but the cause: more losses may join two outages, which have one cause then.
func anyRule(t *rapid.T) record.BudgetRule {
	maybe := func(name string, values ...string) string { return rapid.SampledFrom(append(values, "")).Draw(t, name) }
	r := record.BudgetRule{Selector: record.Selector{Class: maybe("class", "connect-timeout", "refused", "delayed"), Node: maybe("node", "node-1", "node-2"),
		Role: maybe("role", record.RoleDisturbed, record.RoleOther)}}
	n, length := rapid.IntRange(0, 60).Draw(t, "count"), record.Length(rapid.IntRange(0, 6).Draw(t, "seconds"))*record.Length(time.Second)
	switch rapid.IntRange(0, 3).Draw(t, "limit") {
	case 0:
		r.Dropped = &n
	case 1:
		r.Delayed = &n
	case 2:
		r.LongestGap = &length
	default:
		r.Outage = &length
	}
	return r
}

func anyRun(t *rapid.T) generated {
	return generated{rapid.SliceOfN(rapid.Custom(anyLoss), 0, 4).Draw(t, "losses"), rapid.SliceOfN(rapid.Custom(anyRule), 0, 3).Draw(t, "rules"),
		record.Budget{Dropped: rapid.IntRange(0, 40).Draw(t, "dropped"), Delayed: rapid.IntRange(0, 40).Draw(t, "delayed")}}
}

// verdict judges the run. Its attempts are those of the same seed, but for the losses.
func (g generated) verdict(t *testing.T) analysis.Verdict {
	s := recordtest.Disturbed(out)
	s.Excuse(record.PathNode, "node-2", off, over, 0)
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 20, From: recordtest.BaselineAt + 3*time.Millisecond, To: 100 * time.Second})
	s.Probe(recordtest.Lane{ID: 1, Name: "canary", Target: recordtest.CanaryAddress, Rate: 50, From: recordtest.BaselineAt + 5*time.Millisecond, To: recordtest.ScenarioAt, Control: true})
	for i := range s.Attempts {
		for _, l := range g.losses {
			if a := &s.Attempts[i]; a.Lane == 0 && a.Class == record.OK && a.Intended >= l.from && a.Intended < l.from+l.length {
				*a = recordtest.FailedAttempt(record.Attempt{Seq: a.Seq, Intended: a.Intended, Start: a.Start, Source: a.Source}, l.class)
			}
		}
	}
	s.Run.Budget = g.rest
	s.Run.Budget.Rules = g.rules
	r, err := analysis.Build(s.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r.Verdict
}

// More losses never make a pass of a fail.
func TestMoreLossesNeverPass(t *testing.T) {
	check(t, func(rt *rapid.T) error {
		g := anyRun(rt)
		more := g
		more.losses = append(slices.Clone(g.losses), anyLoss(rt))
		if before, after := g.verdict(t), more.verdict(t); before == analysis.Fail && after == analysis.Pass {
			return fmt.Errorf("%+v fails, and passes with the loss %+v", g, more.losses[len(g.losses)])
		}
		return nil
	})
}

// A larger budget never makes a fail of a pass.
func TestALargerBudgetNeverFails(t *testing.T) {
	check(t, func(rt *rapid.T) error {
		g := anyRun(rt)
		larger := g
		larger.rest.Dropped += rapid.IntRange(0, 50).Draw(rt, "more dropped")
		larger.rest.Delayed += rapid.IntRange(0, 50).Draw(rt, "more delayed")
		larger.rules = slices.Clone(g.rules)
		for i := range larger.rules {
			larger.rules[i].Limits = enlarged(rt, larger.rules[i].Limits)
		}
		if before, after := g.verdict(t), larger.verdict(t); before == analysis.Pass && after == analysis.Fail {
			return fmt.Errorf("%+v passes, and fails with %+v", g, larger)
		}
		return nil
	})
}

// enlarged are limits that are as large or larger.
func enlarged(t *rapid.T, l record.Limits) record.Limits {
	count := func(n *int) *int {
		if n == nil {
			return nil
		}
		m := *n + rapid.IntRange(0, 50).Draw(t, "more")
		return &m
	}
	length := func(d *record.Length) *record.Length {
		if d == nil {
			return nil
		}
		m := *d + record.Length(rapid.IntRange(0, 5000).Draw(t, "longer"))*record.Length(time.Millisecond)
		return &m
	}
	return record.Limits{Dropped: count(l.Dropped), Delayed: count(l.Delayed), LongestGap: length(l.LongestGap), Outage: length(l.Outage)}
}

// check looks for an error in some runs: each needs a record on disk.
func check(t *testing.T, property func(*rapid.T) error) {
	t.Helper()
	verdicts := rapid.Custom(func(rt *rapid.T) error { return property(rt) })
	for seed := range 40 {
		if err := verdicts.Example(seed); err != nil {
			t.Fatal(err)
		}
	}
}

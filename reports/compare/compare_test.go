package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record/recordtest"
)

func subject(name string, dropped ...int) Subject {
	s := Subject{Subject: name}
	for i, n := range dropped {
		v := analysis.Pass
		if n > 0 {
			v = analysis.Fail
		}
		s.Runs = append(s.Runs, Run{Seed: int64(i + 1), Verdict: v, Dropped: n, WorstGapMs: float64(10 * n), Report: name + "/report.json"})
	}
	return s
}

func TestComparisons(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name    string
		a, b    Subject
		verdict analysis.Verdict
		real    *bool
		median  float64
		text    string
	}{
		{"three pairs are too few", subject("a", 0, 0, 0), subject("b", 50, 60, 70), analysis.Pass, nil, 60, "too few pairs to tell from chance, 4 are needed"},
		{"worse", subject("a", 0, 0, 0, 0), subject("b", 50, 60, 70, 80), analysis.Fail, &yes, 65, "b has 65 more than a in the median of 4 pairs (95 % interval 50 to 80); the difference is real"},
		{"better", subject("a", 50, 60, 70, 80), subject("b", 0, 0, 0, 0), analysis.Pass, &yes, -65, "b has 65 less than a"},
		{"the same", subject("a", 0, 0, 0, 0, 0), subject("b", 0, 0, 0, 0, 0), analysis.Pass, &no, 0, "no difference between a and b in the median of 5 pairs"},
		{"noise", subject("a", 3, 9, 1, 7, 4), subject("b", 4, 2, 8, 6, 5), analysis.Pass, &no, 1, "chance explains it as well"},
		{"many pairs", subject("a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3), subject("b", 11, 12, 13, 14, 15, 16, 17, 18, 19, 11, 12, 13), analysis.Fail, &yes, 10, "is real"},
	} {
		got, err := New("rollout", []Subject{c.a, c.b})
		if err != nil {
			t.Fatal(err)
		}
		d := got.Difference
		if got.Verdict != c.verdict || d.Metric != "dropped" || d.Estimate != c.median || (d.Real == nil) != (c.real == nil) || (d.Real != nil && *d.Real != *c.real) {
			t.Errorf("%s: verdict %s, difference %+v", c.name, got.Verdict, d)
		}
		for _, write := range []func(*bytes.Buffer) error{func(b *bytes.Buffer) error { return WriteTerminal(b, got) },
			func(b *bytes.Buffer) error { return WriteMarkdown(b, got) }} {
			var b bytes.Buffer
			if err := write(&b); err != nil || !strings.Contains(b.String(), c.text) || !strings.Contains(b.String(), "worst gap: ") {
				t.Errorf("%s: %v, want %q in:\n%s", c.name, err, c.text, b.String())
			}
		}
	}
}

func TestComparisonsThatCannotBeMade(t *testing.T) {
	invalid := subject("b", 0, 0, 0, 0)
	invalid.Runs[2].Verdict = analysis.Invalid
	for name, subjects := range map[string][]Subject{
		"a seed is missing":   {subject("a", 0, 0, 0, 0), subject("b", 0, 0, 0)},
		"a run is invalid":    {subject("a", 0, 0, 0, 0), invalid},
		"a seed stands twice": {subject("a", 0), {Subject: "b", Runs: append(subject("b", 0).Runs, subject("b", 0).Runs...)}},
	} {
		c, err := New("rollout", subjects)
		if err != nil || c.Verdict != analysis.Invalid {
			t.Errorf("%s: %+v, %v, want invalid", name, c, err)
		}
	}
	if _, err := New("rollout", []Subject{subject("a", 0)}); err == nil {
		t.Error("one subject was compared with nothing")
	}
	if _, err := New("rollout", []Subject{subject("a", 0), subject("b")}); err == nil {
		t.Error("a subject without a run was compared")
	}
	apart := subject("b", 0)
	apart.Runs[0].Seed = 9
	c, err := New("rollout", []Subject{subject("a", 0), apart})
	if err != nil || c.Verdict != analysis.Invalid {
		t.Errorf("runs without a common seed: %+v, %v", c, err)
	}
	var b bytes.Buffer
	if err := WriteTerminal(&b, c); err != nil || !strings.Contains(b.String(), "no run with the same seed") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

func TestComparisonJSON(t *testing.T) {
	c, err := New("rollout", []Subject{subject("a", 0, 0, 0), subject("b", 5, 6, 7)})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, c); err != nil {
		t.Fatal(err)
	}
	var raw map[string]any
	if err := json.Unmarshal(b.Bytes(), &raw); err != nil {
		t.Fatal(err)
	}
	if d := raw["difference"].(map[string]any); d["real"] != nil || d["metric"] != "dropped" || d["estimate"] != 6.0 {
		t.Errorf("difference: %v", d)
	}
	r := first(first(raw, "subjects"), "runs")
	for _, key := range []string{"seed", "verdict", "dropped", "worstGapMs", "report"} {
		if _, there := r[key]; !there {
			t.Errorf("a run lacks %q: %v", key, r)
		}
	}
}

func TestARunsEntryComesFromItsReport(t *testing.T) {
	o := recordtest.Rollout{Seed: 6, Rollouts: 1}
	r := reportOf(t, o.Start(o.Lab()))
	got := RunOf(r, "6/report.json", "abc")
	if got.HistorySha256 != "abc" || got.Attempts != r.Totals.Attempts || got.Seed != 6 || got.Verdict != analysis.Fail || got.Dropped != r.Totals.Dropped || got.WorstGapMs != r.Lanes[0].Outages[0].UpperMs {
		t.Errorf("%+v", got)
	}
}

func TestSwappingTheSubjectsTurnsTheDifferenceRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "pairs")
		draw := func(name string) Subject {
			return subject(name, rapid.SliceOfN(rapid.IntRange(0, 50), n, n).Draw(t, name)...)
		}
		a, b := draw("a"), draw("b")
		ab, err := New("x", []Subject{a, b})
		if err != nil {
			t.Fatal(err)
		}
		ba, err := New("x", []Subject{b, a})
		if err != nil {
			t.Fatal(err)
		}
		d, e := ab.Difference, ba.Difference
		if d.Estimate != -e.Estimate || (d.Real == nil) != (n < 4) || (d.Real != nil && *d.Real && d.Low <= 0 && d.High >= 0) {
			t.Fatalf("%+v, the other way round %+v", d, e)
		}
		if d.Low > d.Estimate || d.High < d.Estimate {
			t.Fatalf("the interval %v to %v does not hold the estimate %v", d.Low, d.High, d.Estimate)
		}
	})
}

func TestPermutationShares(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{0, 0, 0, 0}, []float64{1, 2, 3, 4}, 2.0 / 70},
		{[]float64{1, 1}, []float64{1, 1}, 1},
		{[]float64{0}, []float64{5}, 1},
		{[]float64{0, 0}, []float64{5, 6}, 2.0 / 6},
	} {
		if got := permutationShare(c.a, c.b); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

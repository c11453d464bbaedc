package compare

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
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

func TestComparisonsThatCannotBeMade(t *testing.T) {
	for name, c := range map[string]struct {
		subjects []Subject
		against  string
	}{
		"one subject is compared with nothing": {[]Subject{subject("a", 0)}, ""},
		"a subject without a run":              {[]Subject{subject("a", 0), subject("b")}, ""},
		"an unknown reference":                 {[]Subject{subject("a", 0), subject("b", 0)}, "c"},
	} {
		if _, err := New("rollout", c.subjects, Options{Against: c.against}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Every form names the subject, the count of pairs, and the origin of the runs.
func TestFormsShowEachMeasure(t *testing.T) {
	stuck := 2
	b := lost("b", 7, 12, 9, 11)
	b.Runs[1].NotFollowed = &stuck
	c := compared(t, Options{}, lost("a", 5, 6, 9, 8), b)
	for name, write := range map[string]func(io.Writer, *Comparison) error{"terminal": WriteTerminal, "Markdown": WriteMarkdown,
		"page": func(w io.Writer, c *Comparison) error { return c.writePage(w, withoutCourses(c)) }} {
		var out bytes.Buffer
		if err := write(&out, c); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"b is worse than a", "3 of 4 runs dropped more, 1 equal", "4 of 4 runs equal", "worst gap", "seconds of outage", "+2.5", "did not follow", "vm 6.1", "replay", "p1"} {
			if !strings.Contains(strings.ReplaceAll(out.String(), "&#43;", "+"), want) {
				t.Errorf("%s lacks %q:\n%s", name, want, out.String())
			}
		}
	}
}

func TestOnePairIsOneRun(t *testing.T) {
	for more, want := range map[int]string{1: "1 of 1 run dropped more", 2: "2 of 2 runs dropped more"} {
		if got := (Measure{Measure: "dropped", More: more}).PairsText(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Kernels that are compared may differ between subjects, and not within one. Another difference is refused as ever.
func TestComparedKernels(t *testing.T) {
	o := Options{Kernels: true}
	if c := compared(t, o, lost("a", 0, 0), lost("b", 0, 0).kernel("6.12")); c.Verdict != analysis.Pass || !c.Kernels {
		t.Errorf("%s: %q", c.Verdict, c.Reasons)
	}
	changed := lost("b", 0, 0).kernel("6.12")
	changed.Runs[1].Kernel = &record.Kernel{Kind: "vm", Release: "6.12", Source: "debian-13 6.12.118-2"}
	for want, s := range map[string]sub{"the runs of b have different kernels: vm 6.12, vm 6.12 (debian-13 6.12.118-2)": changed, "different programs": lost("b", 0, 0).kernel("6.12").program("p2")} {
		if c := compared(t, o, lost("a", 0, 0), s); c.Verdict != analysis.Invalid || !strings.Contains(strings.Join(c.Reasons, "\n"), want) {
			t.Errorf("%s: %q, want %q", c.Verdict, c.Reasons, want)
		}
	}
}

// A refused comparison names what differs, how often and where, and how to compare all the same.
func TestARefusedComparisonNamesWhatDiffers(t *testing.T) {
	mixed := lost("b", 0, 0, 0)
	mixed.Runs[1].ProgramSha256, mixed.Runs[2].ProgramSha256 = strings.Repeat("c", 64), ""
	c := compared(t, Options{}, lost("a", 0, 0, 0), mixed.kernel("6.12"))
	var b bytes.Buffer
	if err := WriteTerminal(&b, c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"INVALID", "different programs: p1 (3 runs of a, 1 run of b), cccccccccccc (1 run of b), not recorded (1 run of b)",
		"different kernels: vm 6.1 (3 runs of a), vm 6.12 (3 runs of b)", "--mixed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "control planes") {
		t.Errorf("the control planes are the same:\n%s", b.String())
	}
}

func TestARunsEntryComesFromItsReport(t *testing.T) {
	o := recordtest.Rollout{Seed: 6, Rollouts: 1}
	r := reportOf(t, o.Start(o.Lab()))
	got := RunOf(r, "6/report.json", "abc")
	if got.Kernel == nil || *got.Kernel != r.Run.Kernel || got.ControlPlane != "kube" || got.ProgramSha256 != r.Run.ProgramSha256 || *got.OutageSeconds < got.WorstGapMs/1e3-0.001 || got.DetectionFloorMs != *r.DetectionFloor.Ms {
		t.Errorf("%+v", got)
	}
	if got.HistorySha256 != "abc" || got.Attempts != r.Totals.Attempts || got.Seed != 6 || got.Verdict != analysis.Fail || got.Dropped != r.Totals.Dropped || got.WorstGapMs != r.Lanes[0].Outages[0].UpperMs {
		t.Errorf("%+v", got)
	}
}

func TestSecondsOfOutage(t *testing.T) {
	report := &analysis.Report{}
	for _, lane := range [][]analysis.OutageReport{{{From: 10, UpperMs: 500}, {From: 12, UpperMs: 1000}}, {{From: 10.25, UpperMs: 500}, {From: 12.2, UpperMs: 100}, {From: 30, UpperMs: 20}}} {
		report.Lanes = append(report.Lanes, analysis.LaneReport{Outages: lane})
	}
	if got := outageSeconds(report); got != 0.75+1+0.02 {
		t.Errorf("%v s", got)
	}
	if got := outageSeconds(&analysis.Report{}); got != 0 {
		t.Errorf("%v s without an outage", got)
	}
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

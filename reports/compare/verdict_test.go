package compare

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// lost is a subject whose runs, with the seeds 1, 2, …, drop these numbers of connections. A run with a loss fails. Each dropped
// connection is 10 ms of the only outage, which is refused after a restart.
func lost(name string, dropped ...int) sub {
	s := sub{Subject: name}
	for i, n := range dropped {
		seconds := float64(n) / 100
		r := Run{Seed: int64(i + 1), Verdict: analysis.Pass, Attempts: 1e4, Dropped: n, WorstGapMs: float64(10 * n), OutageSeconds: &seconds,
			DetectionFloorMs: 2, Report: name + "/report.json", ProgramSha256: "p1", Kernel: &record.Kernel{Kind: "vm", Release: "6.1"}, ControlPlane: "replay"}
		if n > 0 {
			r.Verdict, r.Failures = analysis.Fail, []analysis.Failures{{Lane: "web", Class: "refused", Event: "proxy restarted", Connections: n}}
		}
		s.Runs = append(s.Runs, r)
	}
	return s
}

// sub changes a subject. Each method returns another one.
type sub Subject

func (s sub) each(change func(i int, r *Run)) sub {
	s.Runs = append([]Run(nil), s.Runs...)
	for i := range s.Runs {
		change(i, &s.Runs[i])
	}
	return s
}

// accepted has only runs whose loss a budget accepts.
func (s sub) accepted() sub { return s.judged("pass") }

// judged gives the runs these verdicts. The last one holds for all further runs.
func (s sub) judged(verdicts string) sub {
	words := strings.Fields(verdicts)
	return s.each(func(i int, r *Run) { r.Verdict = analysis.Verdict(words[min(i, len(words)-1)]) })
}

// delayed adds delayed connections, each with an outage of half a second. A run with them fails.
func (s sub) delayed(numbers ...int) sub {
	return s.each(func(i int, r *Run) {
		if n := numbers[i]; n > 0 {
			r.Delayed, r.Verdict = n, analysis.Fail
			r.Failures = append(r.Failures, analysis.Failures{Lane: "web", Class: "delayed", Event: "proxy restarted", Connections: n})
		}
	})
}

func (s sub) gaps(ms ...float64) sub { return s.each(func(i int, r *Run) { r.WorstGapMs = ms[i] }) }
func (s sub) outage(seconds ...float64) sub {
	return s.each(func(i int, r *Run) { r.OutageSeconds = &seconds[i] })
}
func (s sub) floor(ms float64) sub { return s.each(func(_ int, r *Run) { r.DetectionFloorMs = ms }) }

// failing replaces the failures of one run.
func (s sub) failing(run int, class, event string) sub {
	return s.each(func(i int, r *Run) {
		if i == run {
			r.Failures = []analysis.Failures{{Lane: "web", Class: class, Event: event, Connections: r.Dropped}}
		}
	})
}

func (s sub) program(sum string) sub { return s.each(func(_ int, r *Run) { r.ProgramSha256 = sum }) }
func (s sub) plane(name string) sub  { return s.each(func(_ int, r *Run) { r.ControlPlane = name }) }
func (s sub) kernel(release string) sub {
	return s.each(func(_ int, r *Run) { r.Kernel = &record.Kernel{Kind: "vm", Release: release} })
}

// old has runs as version 1 of compare.json has them.
func (s sub) old() sub {
	return s.each(func(_ int, r *Run) {
		r.OutageSeconds, r.DetectionFloorMs, r.ProgramSha256, r.Kernel, r.ControlPlane = nil, 0, "", nil, ""
	})
}

// from gives the runs the seeds from this one on.
func (s sub) from(seed int64) sub {
	return s.each(func(i int, r *Run) { r.Seed = seed + int64(i) })
}

// without has no run with the number i.
func (s sub) without(i int) sub {
	s.Runs = append(append([]Run(nil), s.Runs[:i]...), s.Runs[i+1:]...)
	return s
}

// twice has the last run twice.
func (s sub) twice() sub {
	s.Runs = append(append([]Run(nil), s.Runs...), s.Runs[len(s.Runs)-1])
	return s
}

// ended replaces one run by a run without a report.
func (s sub) ended(i int) sub {
	return s.each(func(k int, r *Run) {
		if k == i {
			*r = InvalidRun(r.Seed, r.Report, "")
		}
	})
}

// verdictRow is a comparison with what a careful person says of it.
type verdictRow struct {
	name     string
	subjects []sub
	// want has the verdict of each subject. For each subject except the reference it has, after a bar, the verdict and those of its measures:
	// dropped, delayed, worst gap, seconds of outage.
	want    string
	code    int
	options Options
}

var anyLoss = Options{Budget: &record.Budget{Dropped: 1e6, Delayed: 1e6}}

var verdictRows = []verdictRow{
	// Equal runs.
	{"nothing lost", two(lost("a", 0, 0, 0, 0), lost("b", 0, 0, 0, 0)), "pass, pass | b same: same same same same", 0, Options{}},
	{"the same loss, accepted", two(lost("a", 5, 6, 7, 8).accepted(), lost("b", 5, 6, 7, 8).accepted()), "pass, pass | b same: same same same same", 0, anyLoss},
	{"the same loss, without a budget", two(lost("a", 5, 6, 7, 8), lost("b", 5, 6, 7, 8)), "fail, fail | b same: same same same same", 1, Options{}},

	// One pair.
	{"one pair, nothing lost", two(lost("a", 0), lost("b", 0)), "pass, pass | b same: same same same same", 0, Options{}},
	{"one pair, the same loss", two(lost("a", 9).accepted(), lost("b", 9).accepted()), "pass, pass | b same: same same same same", 0, anyLoss},
	{"one pair, any loss against zero", two(lost("a", 0), lost("b", 1)), "pass, fail | b worse: worse same worse worse", 1, Options{}},
	{"one pair, zero against a loss", two(lost("a", 5), lost("b", 0)), "fail, pass | b better: better same better better", 0, Options{}},
	{"one pair, more loss", two(lost("a", 50).accepted(), lost("b", 60).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"one pair, less loss", two(lost("a", 60).accepted(), lost("b", 10).accepted()), "pass, pass | b better: better same better better", 0, anyLoss},

	// Two and three pairs.
	{"two pairs, 1,497 dropped in each", two(lost("a", 0, 0), lost("b", 1497, 1497)), "pass, fail | b worse: worse same worse worse", 1, Options{}},
	{"two pairs, both with more loss", two(lost("a", 10, 12).accepted(), lost("b", 30, 35).accepted()), "pass, pass | b worse: worse same worse worse", 1, anyLoss},
	{"two pairs, both with slightly more loss", two(lost("a", 100, 120).accepted(), lost("b", 101, 121).accepted()), "pass, pass | b worse: worse same worse worse", 1, anyLoss},
	{"two pairs, both with less loss", two(lost("a", 30, 35).accepted(), lost("b", 10, 12).accepted()), "pass, pass | b better: better same better better", 0, anyLoss},
	{"two pairs, mixed", two(lost("a", 30, 35).accepted(), lost("b", 40, 20).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"two pairs, mixed, without a budget", two(lost("a", 30, 35), lost("b", 40, 20)), "fail, fail | b inconclusive: inconclusive same inconclusive inconclusive", 1, Options{}},
	{"two pairs, one equal, one with more loss", two(lost("a", 30, 35).accepted(), lost("b", 30, 50).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"three pairs, two with more loss, one equal", two(lost("a", 30, 35, 40).accepted(), lost("b", 30, 50, 60).accepted()), "pass, pass | b worse: worse same worse worse", 1, anyLoss},
	{"zeros with losses on other seeds", two(lost("a", 9, 0, 0).accepted(), lost("b", 0, 9, 0).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},

	// Four pairs or more.
	{"one loss against zeros", two(lost("a", 0, 0, 0, 0), lost("b", 0, 0, 1, 0)), "pass, fail | b worse: worse same worse worse", 1, Options{}},
	{"zeros against one loss", two(lost("a", 0, 0, 1, 0), lost("b", 0, 0, 0, 0)), "fail, pass | b better: better same better better", 0, Options{}},
	{"four pairs, all with slightly more loss", two(lost("a", 100, 140, 90, 200).accepted(), lost("b", 101, 141, 91, 201).accepted()), "pass, pass | b worse: worse same worse worse", 1, anyLoss},
	{"four pairs, one with more loss, three equal", two(lost("a", 5, 5, 5, 5).accepted(), lost("b", 5, 6, 5, 5).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"large noise with equal means", two(lost("a", 30, 90, 10, 70, 40).accepted(), lost("b", 40, 20, 80, 60, 40).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"small noise", two(lost("a", 400, 410, 395, 405).accepted(), lost("b", 405, 402, 400, 401).accepted()), "pass, pass | b same: same same same same", 0, anyLoss},
	{"small noise that leans to more loss", two(lost("a", 400, 401, 402, 403, 404, 405, 406, 407, 408, 1000).accepted(),
		lost("b", 404, 405, 406, 407, 408, 409, 410, 411, 412, 990).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"four pairs, three with much more loss", two(lost("a", 10, 11, 12, 13).accepted(), lost("b", 50, 60, 70, 5).accepted()), "pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"twelve pairs, mostly equal, two with much more loss", two(lost("a", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5).accepted(), lost("b", 500, 500, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0).accepted()),
		"pass, pass | b inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"eight pairs, seven with much more loss", two(lost("a", 1, 2, 3, 4, 5, 6, 7, 8).accepted(), lost("b", 51, 52, 53, 54, 55, 56, 57, 0).accepted()), "pass, pass | b worse: worse same worse worse", 1, anyLoss},
	{"eight pairs, seven with much less loss", two(lost("a", 51, 52, 53, 54, 55, 56, 57, 0).accepted(), lost("b", 1, 2, 3, 4, 5, 6, 7, 8).accepted()), "pass, pass | b better: better same better better", 0, anyLoss},

	// Single measures.
	{"only delayed is worse", two(lost("a", 0, 0, 0, 0), lost("b", 0, 0, 0, 0).delayed(3, 4, 3, 5).gaps(500, 500, 500, 500).outage(1, 1, 1, 1)), "pass, fail | b worse: same worse worse worse", 1, Options{}},
	{"only delayed is worse, both lose", two(lost("a", 9, 8).delayed(2, 3).accepted(), lost("b", 9, 8).delayed(7, 9).accepted()), "pass, pass | b worse: same worse same same", 1, anyLoss},
	{"delayed instead of dropped", two(lost("a", 9, 8).delayed(1, 1).accepted(), lost("b", 3, 2).delayed(7, 7).accepted()), "pass, pass | b worse: better worse better better", 1, anyLoss},
	{"the gap is worse, but fewer are dropped", two(lost("a", 50, 60, 70, 80).accepted(), lost("b", 20, 30, 40, 50).gaps(5000, 5000, 5000, 5000).accepted()), "pass, pass | b worse: better same worse better", 1, anyLoss},
	{"more seconds of outage in shorter gaps", two(lost("a", 50, 60).accepted(), lost("b", 50, 60).gaps(100, 100).outage(3, 4).accepted()), "pass, pass | b worse: same same better worse", 1, anyLoss},
	{"gaps differ by less than the detection floor", two(lost("a", 50, 60).gaps(500, 600).floor(21).accepted(), lost("b", 50, 60).gaps(515, 620).floor(21).accepted()), "pass, pass | b same: same same same same", 0, anyLoss},
	{"a gap below the detection floor against none", two(lost("a", 0, 0).floor(21), lost("b", 1, 1).floor(21)), "pass, fail | b worse: worse same worse worse", 1, Options{}},

	// Classes and causes.
	{"less loss, and a new class", two(lost("a", 50, 60).accepted(), lost("b", 5, 6).failing(1, "misrouted", "proxy restarted").accepted()), "pass, pass | b worse: better same better better, new misrouted", 1, anyLoss},
	{"less loss, and a new cause", two(lost("a", 50, 60).accepted(), lost("b", 5, 6).failing(0, "refused", "pod exited").accepted()), "pass, pass | b worse: better same better better, new pod exited", 1, anyLoss},
	{"the class is known from one run of the reference", two(lost("a", 50, 60).failing(0, "misrouted", "proxy restarted").accepted(), lost("b", 5, 6).failing(1, "misrouted", "proxy restarted").accepted()),
		"pass, pass | b better: better same better better", 0, anyLoss},
	{"a class is gone", two(lost("a", 50, 60).failing(0, "misrouted", "pod exited").accepted(), lost("b", 50, 60).accepted()), "pass, pass | b same: same same same same", 0, anyLoss},
	{"unexplained is no new cause", two(lost("a", 50, 60).accepted(), lost("b", 50, 60).failing(0, "refused", "").accepted()), "pass, pass | b same: same same same same", 0, anyLoss},
	{"a class of an invalid run is not new", two(lost("a", 0, 0, 0), lost("b", 0, 0, 3).failing(2, "misrouted", "pod exited").judged("pass pass invalid")), "pass, invalid | b same: same same same same", 3, Options{}},
	{"a class of the reference's invalid run is unknown", two(lost("a", 9, 9, 9).failing(2, "misrouted", "proxy restarted").judged("pass pass invalid"), lost("b", 9, 9, 9).failing(0, "misrouted", "proxy restarted").accepted()),
		"invalid, pass | b worse: same same same same, new misrouted", 1, Options{}},

	// Invalid runs, and runs without a pair.
	{"one run is invalid, the others are equal", two(lost("a", 0, 0, 0, 0), lost("b", 0, 0, 0, 0).ended(2)), "pass, invalid | b same: same same same same", 3, Options{}},
	{"one run is invalid, the others are worse", two(lost("a", 0, 0, 0, 0), lost("b", 7, 8, 0, 9).ended(2)), "pass, fail | b worse: worse same worse worse", 1, Options{}},
	{"one run of the reference is invalid", two(lost("a", 0, 0, 0, 0).ended(0), lost("b", 0, 0, 0, 0)), "invalid, pass | b same: same same same same", 3, Options{}},
	{"all runs of a subject are invalid", two(lost("a", 0, 0), lost("b", 9, 9).judged("invalid")), "pass, invalid | b inconclusive: inconclusive inconclusive inconclusive inconclusive", 3, Options{}},
	{"all runs of the reference are invalid", two(lost("a", 9, 9).judged("invalid"), lost("b", 0, 0)), "invalid, pass | b inconclusive: inconclusive inconclusive inconclusive inconclusive", 3, Options{}},
	{"a run is skipped", two(lost("a", 0, 0), lost("b", 0, 0).judged("pass skipped")), "pass, invalid | b same: same same same same", 3, Options{}},
	{"a seed lacks a run", two(lost("a", 0, 0, 0, 0), lost("b", 0, 0, 0, 0).without(1)), "pass, pass | b same: same same same same", 3, Options{}},
	{"a seed lacks a run, the others are worse", two(lost("a", 0, 0, 0), lost("b", 5, 5, 5).without(1)), "pass, fail | b worse: worse same worse worse", 1, Options{}},
	{"a seed has two runs", two(lost("a", 0, 0), lost("b", 0, 0).twice()), "pass, pass | b same: same same same same", 3, Options{}},
	{"no common seed", two(lost("a", 0, 0), lost("b", 0, 0).from(7)), "pass, pass | b inconclusive: inconclusive inconclusive inconclusive inconclusive", 3, Options{}},

	// Runs that were not made alike.
	{"another program", two(lost("a", 0, 0), lost("b", 0, 0).program("p2")), "pass, pass", 3, Options{}},
	{"another program, worse", two(lost("a", 0, 0), lost("b", 5, 5).program("p2")), "pass, fail", 3, Options{}},
	{"another program, on request", two(lost("a", 0, 0), lost("b", 0, 0).program("p2")), "pass, pass | b same: same same same same", 0, Options{Mixed: true}},
	{"another program, worse, on request", two(lost("a", 0, 0), lost("b", 5, 5).program("p2")), "pass, fail | b worse: worse same worse worse", 1, Options{Mixed: true}},
	{"another kernel", two(lost("a", 0, 0), lost("b", 0, 0).kernel("6.12")), "pass, pass", 3, Options{}},
	{"another control plane", two(lost("a", 0, 0), lost("b", 0, 0).plane("kube")), "pass, pass", 3, Options{}},
	{"the program of one subject is unknown", two(lost("a", 0, 0).program(""), lost("b", 0, 0)), "pass, pass", 3, Options{}},
	{"the runs of version 1", two(lost("a", 0, 0).old(), lost("b", 0, 0).old()), "pass, pass | b same: same same same -", 0, Options{}},
	{"the runs of version 1, worse", two(lost("a", 0, 0).old(), lost("b", 5, 5).old()), "pass, fail | b worse: worse same worse -", 1, Options{}},

	// More subjects.
	{"the second of three is worse", three(lost("a", 0, 0), lost("b", 5, 5), lost("c", 0, 0)), "pass, fail, pass | b worse: worse same worse worse | c same: same same same same", 1, Options{}},
	{"the last of three is worse", three(lost("a", 0, 0), lost("b", 0, 0), lost("c", 5, 5)), "pass, pass, fail | b same: same same same same | c worse: worse same worse worse", 1, Options{}},
	{"three, all equal", three(lost("a", 0, 0), lost("b", 0, 0), lost("c", 0, 0)), "pass, pass, pass | b same: same same same same | c same: same same same same", 0, Options{}},
	{"one better, one inconclusive", three(lost("a", 30, 35).accepted(), lost("b", 0, 0), lost("c", 40, 20).accepted()),
		"pass, pass, pass | b better: better same better better | c inconclusive: inconclusive same inconclusive inconclusive", 3, anyLoss},
	{"one worse, one inconclusive", three(lost("a", 30, 35).accepted(), lost("b", 50, 60).accepted(), lost("c", 40, 20).accepted()),
		"pass, pass, pass | b worse: worse same worse worse | c inconclusive: inconclusive same inconclusive inconclusive", 1, anyLoss},

	// Reference and budgets.
	{"the last subject is the reference", three(lost("a", 5, 5), lost("b", 0, 0), lost("c", 0, 0)), "fail, pass, pass | a worse: worse same worse worse | b same: same same same same", 1, Options{Against: "c"}},
	{"a reference in the middle that loses", three(lost("a", 0, 0), lost("b", 5, 5), lost("c", 0, 0)), "pass, fail, pass | a better: better same better better | c better: better same better better", 0, Options{Against: "b"}},
	{"the reference fails, the subject loses nothing", two(lost("a", 50, 60, 70, 80), lost("b", 0, 0, 0, 0)), "fail, pass | b better: better same better better", 0, Options{}},
	{"the reference fails an explicit budget", two(lost("a", 50, 60), lost("b", 0, 0)), "fail, pass | b better: better same better better", 1, Options{Budget: &record.Budget{Dropped: 1}}},
	{"the subject is better, and fails without a budget", two(lost("a", 50, 60), lost("b", 5, 6)), "fail, fail | b better: better same better better", 1, Options{}},
	{"the subject is better, within a budget", two(lost("a", 50, 60), lost("b", 5, 6).accepted()).referenceAccepted(), "pass, pass | b better: better same better better", 0, anyLoss},
	{"a subject fails and loses nothing", two(lost("a", 0, 0), lost("b", 0, 0).judged("pass fail")), "pass, fail | b same: same same same same", 1, Options{}},
}

type subs []sub

func two(a, b sub) subs      { return subs{a, b} }
func three(a, b, c sub) subs { return subs{a, b, c} }
func (s subs) referenceAccepted() subs {
	s[0] = s[0].accepted()
	return s
}

// said is what a comparison says, in the form of verdictRow.want.
func said(c *Comparison) string {
	var verdicts []string
	for _, s := range c.Subjects {
		verdicts = append(verdicts, string(s.Verdict))
	}
	text := strings.Join(verdicts, ", ")
	for _, d := range c.Differences {
		var words []string
		for _, name := range []string{"dropped", "delayed", "worstGapMs", "outageSeconds"} {
			word := "-"
			for _, m := range d.Measures {
				if m.Measure == name {
					word = string(m.Verdict)
				}
			}
			words = append(words, word)
		}
		text += fmt.Sprintf(" | %s %s: %s", d.Subject, d.Verdict, strings.Join(words, " "))
		for _, what := range append(append([]string{}, d.NewClasses...), d.NewCauses...) {
			text += ", new " + what
		}
	}
	return text
}

func compared(t interface {
	Helper()
	Fatal(...any)
}, o Options, subjects ...sub) *Comparison {
	t.Helper()
	var all []Subject
	for _, s := range subjects {
		all = append(all, Subject(s))
	}
	c, err := New("rollout", all, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVerdicts(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range verdictRows {
		if seen[row.name] {
			t.Errorf("two rows have the name %q", row.name)
		}
		seen[row.name] = true
		c := compared(t, row.options, row.subjects...)
		if got, code := said(c), c.Verdict.ExitCode(); got != row.want || code != row.code {
			t.Errorf("%s:\n got %s, exit code %d (%s)\nwant %s, exit code %d", row.name, got, code, strings.Join(c.Reasons, "; "), row.want, row.code)
		}
		if len(c.Reasons) == 0 {
			t.Errorf("%s: the verdict has no reason", row.name)
		}
	}
}

// A comparison never passes while a subject is worse in each pair, fails, or has an invalid run.
func TestNoWorseSubjectIsGreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "pairs")
		draw := func(name string) []int { return rapid.SliceOfN(rapid.IntRange(0, 40), n, n).Draw(t, name) }
		a, b := draw("a"), draw("b")
		before := compared(t, anyLoss, lost("a", a...).accepted(), lost("b", b...).accepted())
		worse, zero := true, true
		for i := range a {
			worse, zero = worse && b[i] > a[i], zero && a[i] == 0
		}
		if green := before.Verdict == analysis.Pass; green && worse {
			t.Fatalf("%v against %v is green", b, a)
		}
		for i := range b {
			if zero && b[i] > 0 && before.Verdict != analysis.Fail {
				t.Fatalf("%v against zeros is %s", b, before.Verdict)
			}
		}
		broken := rapid.IntRange(0, n-1).Draw(t, "invalid")
		if c := compared(t, anyLoss, lost("a", a...).accepted(), lost("b", b...).accepted().ended(broken)); c.Verdict == analysis.Pass {
			t.Fatal("an invalid run is green")
		}
		failed := compared(t, Options{}, lost("a", a...), lost("b", b...))
		for i := range b {
			if b[i] > 0 && failed.Verdict != analysis.Fail {
				t.Fatalf("a subject that fails is %s", failed.Verdict)
			}
		}
	})
}

func TestSwappingTheSubjectsTurnsBetterIntoWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "pairs")
		draw := func(name string) sub {
			return lost(name, rapid.SliceOfN(rapid.IntRange(0, 50), n, n).Draw(t, name)...).accepted()
		}
		a, b := draw("a"), draw("b")
		turned := map[Relation]Relation{Better: Worse, Worse: Better, Same: Same, Unclear: Unclear}
		one, other := compared(t, anyLoss, a, b).Differences[0].Measures[0], compared(t, anyLoss, b, a).Differences[0].Measures[0]
		if one.Estimate != -other.Estimate || one.More != other.Less || one.Equal != other.Equal {
			t.Fatalf("%+v, the other way round %+v", one, other)
		}
		if one.Low > one.Estimate || one.High < one.Estimate {
			t.Fatalf("the interval %v to %v does not hold the estimate %v", one.Low, one.High, one.Estimate)
		}
		// A single pair with more loss is inconclusive, one with less is better: the rule never lets a comparison pass too easily.
		if turned[one.Verdict] != other.Verdict && !(one.Verdict == Better && other.Verdict == Unclear || one.Verdict == Unclear && other.Verdict == Better) {
			t.Fatalf("%+v, the other way round %+v", one, other)
		}
	})
}

package compare

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

// factRuns are runs of a subject, one for each number of dropped connections.
func factRuns(dropped ...int) (runs []Run) {
	for i, n := range dropped {
		r := Run{Seed: int64(i + 1), Verdict: analysis.Pass, Attempts: 1000, Dropped: n, Report: "a/report.json"}
		if n > 0 {
			r.Verdict, r.Failures = analysis.Fail, []analysis.Failures{{Class: "reset", Connections: n}}
		}
		runs = append(runs, r)
	}
	return runs
}

// A comparison says of each subject what it lost, in how many runs; the one that lost more is the first.
func TestFactsOfEachSubject(t *testing.T) {
	c, err := New("rollout", []Subject{{Subject: "bundled", Runs: factRuns(0, 0)}, {Subject: "old", Runs: factRuns(1490, 1504)}}, Options{Against: "old"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "old dropped about 1,497 connections per run in 2 of 2 runs; bundled dropped none in 2 runs."; c.Facts() != want {
		t.Errorf("facts %q, want %q", c.Facts(), want)
	}
	if c.Subjects[0].Verdict != analysis.Pass || c.Subjects[1].Verdict != analysis.Fail {
		t.Errorf("the subjects have no verdicts of their own: %+v", c.Subjects)
	}
	for _, write := range []func(*bytes.Buffer) error{func(b *bytes.Buffer) error { return WriteTerminal(b, c) }, func(b *bytes.Buffer) error { return WriteMarkdown(b, c) }} {
		var b bytes.Buffer
		if err := write(&b); err != nil || !strings.Contains(b.String(), c.Facts()) || strings.Contains(b.String(), " to -") {
			t.Errorf("%v:\n%s", err, b.String())
		}
	}
}

// Of fewer than four pairs there is no interval, and the text says how many are needed. The twin has four.
func TestFewPairsHaveNoInterval(t *testing.T) {
	for pairs, few := range map[int]bool{2: true, 4: false} {
		a, b := []int{10, 900, 10, 900}[:pairs], []int{900, 10, 900, 10}[:pairs]
		c, err := New("rollout", []Subject{{Subject: "a", Runs: factRuns(a...)}, {Subject: "b", Runs: factRuns(b...)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.Differences[0].Measures[:1] {
			if _, interval := m.texts(); strings.HasPrefix(interval, "none: ") != few {
				t.Errorf("%d pairs have the interval %q", pairs, interval)
			}
		}
		if said := strings.Contains(strings.Join(c.Reasons, "; "), "inconclusive: 2 pairs, need 4"); said != few {
			t.Errorf("%d pairs: %q", pairs, c.Reasons)
		}
	}
}

// Many subjects are a matrix with a cell for each run, which says its verdict in a word.
func TestManySubjectsAreAMatrix(t *testing.T) {
	var subjects []Subject
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		subjects = append(subjects, Subject{Subject: name, Runs: factRuns(0, i*10, 0)})
	}
	c, err := New("rollout", subjects, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.writePage(&b, coursesOf(c)); err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)class="matrix".*?</table>`).FindString(html.UnescapeString(b.String()))
	if strings.Count(table, "<tr>") != 6 || strings.Count(table, `href="a/report.html"`) != 15 || strings.Count(table, "</a> fail") != 4 || !strings.Contains(table, "40</a> fail") {
		t.Errorf("the matrix:\n%s", table)
	}
}

// coursesOf are runs without a course.
func coursesOf(c *Comparison) (subjects [][]runCourse) {
	for _, s := range c.Subjects {
		var runs []runCourse
		for _, r := range s.Runs {
			runs = append(runs, runCourse{r, &course{}})
		}
		subjects = append(subjects, runs)
	}
	return subjects
}

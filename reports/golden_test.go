package reports

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports/page"
)

func TestForms(t *testing.T) {
	labs := recordtest.PageLabs()
	for _, name := range slices.Sorted(maps.Keys(labs)) {
		h, r, origin := built(t, labs[name])
		for ending, write := range map[string]func(io.Writer) error{
			"terminal.txt":         func(w io.Writer) error { return Terminal{Width: 60}.Write(w, r, origin) },
			"terminal.verbose.txt": func(w io.Writer) error { return Terminal{Verbose: true}.Write(w, r, origin) },
			"summary.md":           func(w io.Writer) error { return WriteMarkdown(w, r, origin) },
			"junit.xml":            func(w io.Writer) error { return WriteJUnit(w, r, origin) },
			"report.json":          func(w io.Writer) error { return analysis.WriteJSON(w, r) },
			"lanes.txt":            func(w io.Writer) error { return WriteLanes(w, r, h) },
			"svg":                  func(w io.Writer) error { return WriteSVG(w, PictureOf(r), ThemeAuto) },
			"page.txt": func(w io.Writer) error {
				var b bytes.Buffer
				err := page.Write(&b, r, h)
				io.WriteString(w, testfiles.Outline(b.String()))
				return err
			},
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			testfiles.Golden(t, name+"."+ending, b.Bytes())
		}
	}
}

// pageFrom is a history's report and its page.
func pageFrom(t *testing.T, h *record.History) (*analysis.Report, string) {
	t.Helper()
	r, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.Write(&b, r, h); err != nil {
		t.Fatal(err)
	}
	return r, b.String()
}

// A page needs nothing but itself. Links to upstream issues load nothing.
func TestThePageNeedsNoNetwork(t *testing.T) {
	for name, s := range recordtest.PageLabs() {
		r, page := pageFrom(t, s.Write(t))
		if found := regexp.MustCompile(`(?i)(https?:|//[a-z]|src=|@import|url\([^#]|<link [^>]*href="[^d])[^\n]{0,60}`).FindString(strings.ReplaceAll(page, `<a href="https://github.com/kubernetes/kubernetes/issues/`, "")); found != "" {
			t.Errorf("%s: the page asks for something from outside: %s", name, found)
		}
		for _, must := range []string{"Content-Security-Policy", r.Headline(), units.Thousands(r.Totals.Attempts), r.Run.InputsSha256, "prefers-color-scheme:dark", "@media print"} {
			if !strings.Contains(html.UnescapeString(page), must) {
				t.Errorf("%s: the page lacks %q", name, must)
			}
		}
	}
}

// Nothing that was measured is no zero: the page of such a record does not say that nothing was dropped.
func TestThePageOfNothingClaimsNothing(t *testing.T) {
	good := recordtest.Rollout{Seed: 1, Fallback: true, Rollouts: 1}
	for say, s := range map[string]*recordtest.Lab{"no connection was measured": recordtest.NewLab(3), "no connection was dropped or delayed": good.Start(good.Lab())} {
		_, page := pageFrom(t, s.Write(t))
		if !strings.Contains(page, say) || strings.Count(page, ">no connection was ") != 1 {
			t.Errorf("the page lacks %q", say)
		}
	}
}

// Whatever the texts of a history are, they are text on the page.
func TestTextsAreNeverMarkup(t *testing.T) {
	o := recordtest.Rollout{Seed: 1, Rollouts: 1}
	s := o.Lab()
	const evil = `</script><script>alert(1)</script><img src=x onerror="y">`
	s.Run.Command, s.Run.Scenario, s.Run.Subject.Name = evil, evil, evil
	s.Event(30*time.Second, record.KindStep, evil, evil, evil, "state", "end")
	for i := range s.Pods {
		s.Pods[i].Name = evil
	}
	r, page := pageFrom(t, o.Start(s).Write(t))
	if strings.Contains(page, "<img") || strings.Contains(page, "<script>alert") {
		t.Error("a text of the history became markup")
	}
	var b bytes.Buffer
	if err := WriteMarkdown(&b, r, record.Origin{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script") {
		t.Error("a text of the history became markup in the summary")
	}
}

// Everything in the run's folder is a function of the history: no clock, no path, no order of a map.
func TestReportsAreRepeatable(t *testing.T) {
	o := recordtest.Rollout{Seed: 2, Rollouts: 2}
	s := o.Start(o.Lab())
	var seen map[string]string
	for range 3 {
		dir := t.TempDir()
		if _, err := WriteAll(dir, s.Write(t)); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, name := range []string{ReportFile, PageFile, JUnitFile, SummaryFile} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(data)
		}
		if seen != nil && !maps.Equal(seen, files) {
			t.Fatal("the same history gave other files")
		}
		seen = files
	}
	if !strings.HasSuffix(seen[ReportFile], "}\n") {
		t.Error("report.json does not end with a newline")
	}
	file := filepath.Join(t.TempDir(), ReportFile)
	if err := os.WriteFile(file, []byte(seen[ReportFile]), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := analysis.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := analysis.WriteJSON(&again, r); err != nil || again.String() != seen[ReportFile] {
		t.Errorf("report.json changes when it is read and written: %v", err)
	}
}

// With as much as there can be of everything, a summary has fewer than 60 lines. The longest outages are in it and in JUnit, in order of time.
func TestTheWorstSummaryIsShort(t *testing.T) {
	ms := 20.0
	r := &analysis.Report{Verdict: analysis.Fail, NextSteps: slices.Repeat([]string{"do something"}, 9), Reasons: slices.Repeat([]string{"a reason"}, 50), Run: analysis.ReportRun{Scenario: "rollout", Duration: 500, Seed: 3},
		Excused: make([]analysis.ExcusedReport, 50), Recovery: &analysis.RecoveryReport{Text: "recovered"}, DetectionFloor: analysis.DetectionFloor{Ms: &ms}, Totals: analysis.Totals{Attempts: 1e6, Dropped: 1e5}}
	for lane := range 20 {
		l := analysis.LaneReport{Name: fmt.Sprint("lane-", lane), Slow: &analysis.SlowReport{Text: "slow"}, DroppedPerSecond: slices.Repeat([]int{1}, 500)}
		for i := range 20 {
			upper := float64(100 + lane)
			l.Outages = append(l.Outages, analysis.OutageReport{From: float64(20*i + 19 - lane), UpperMs: upper, Classes: map[string]int{"refused": 1}, Cause: analysis.CauseReport{Kind: fmt.Sprint(lane, i), Text: "a cause"}})
		}
		r.Lanes = append(r.Lanes, l)
	}
	r.Lanes[19].Outages = r.Lanes[19].Outages[:5]
	var markdown, junit bytes.Buffer
	if err := WriteMarkdown(&markdown, r, record.Origin{Command: "hitless run rollout --set replicas=2 --rate 50"}); err != nil {
		t.Fatal(err)
	}
	if err := WriteJUnit(&junit, r, record.Origin{Command: "hitless run rollout --set replicas=2 --rate 50"}); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(markdown.Bytes(), []byte("\n")); lines >= 60 || lines < 55 {
		t.Errorf("the summary has %d lines:\n%s", lines, markdown.String())
	}
	for name, text := range map[string]string{"summary": markdown.String(), "JUnit": junit.String()} {
		at := 0
		for _, from := range []string{"+0.000 s", "+20.000 s", "+40.000 s", "+60.000 s", "+80.000 s"} { // of the last lane, whose outages are the longest
			next := strings.Index(text[at:], from)
			if next < 0 {
				t.Fatalf("the %s lacks the outage at %s, or is not in order of time:\n%s", name, from, text)
			}
			at += next
		}
	}
	r.Lanes = r.Lanes[19:]
	r.Lanes[0].Outages = append(r.Lanes[0].Outages, r.Lanes[0].Outages[0])
	junit.Reset()
	if err := WriteJUnit(&junit, r, record.Origin{}); err != nil || !strings.Contains(junit.String(), "… 1 more outage&#xA;") {
		t.Errorf("%v: one outage more:\n%s", err, junit.String())
	}
}

// The test case of a run has what tells it from others, and that of a pass what the run did not measure or excused.
func TestJUnitTellsRunsApart(t *testing.T) {
	r := &analysis.Report{Verdict: analysis.Pass, Subject: record.Subject{Name: "bundled"}, Run: analysis.ReportRun{Scenario: "rollout", Seed: 7}, Totals: analysis.Totals{Attempts: 10},
		Reasons: []string{"the sentence", "lane udp was skipped: no UDP", "the budget covers 3 dropped"}}
	write := func() string {
		var b bytes.Buffer
		if err := WriteJUnit(&b, r, record.Origin{Command: "hitless run rollout --set replicas=2 --rate 50"}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := write()
	for _, want := range []string{`name="bundled stays within the loss budget: rollout replicas=2 --rate 50, seed 7"`, `<property name="note" value="0 of 10 connections dropped.">`,
		`<property name="note" value="lane udp was skipped: no UDP">`, `<property name="note" value="the budget covers 3 dropped">`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if r.Verdict = analysis.Fail; strings.Contains(write(), `name="note"`) {
		t.Error("the notes of a failed run are there twice")
	}
}

// A summary stays short and a terminal's table readable, however bad the run was.
func TestBadRunsHaveShortSummaries(t *testing.T) {
	o := recordtest.Rollout{Seed: 1, Fallback: true, Rollouts: 4}
	s := o.Lab()
	for i := range 400 {
		from := recordtest.ScenarioAt + recordtest.RolloutFor/100*time.Duration(i)
		s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: from, To: from + recordtest.RolloutFor/500, Class: recordtest.FaultClasses[i%10]})
	}
	for range 20 {
		s.Event(recordtest.ScenarioAt, record.KindGuard, "", "conntrack", "conntrack is | full")
	}
	h := o.Start(s).Write(t)
	r, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	var markdown, terminal bytes.Buffer
	if err := WriteMarkdown(&markdown, r, record.Origin{Command: "x"}); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(markdown.Bytes(), []byte("\n")); lines >= 60 {
		t.Errorf("the summary has %d lines", lines)
	}
	if err := (Terminal{Verbose: true}).Write(&terminal, r, record.Origin{}); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(terminal.Bytes(), []byte("\n")); lines > 100 || !strings.Contains(terminal.String(), " seconds more with ") {
		t.Errorf("the terminal shows %d lines, and must say what it leaves out:\n%s", lines, terminal.String())
	}
}

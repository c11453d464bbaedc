package compare

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/chart"
)

// comparedFolder is the folder of a comparison: rollouts without the fallback, then with it but with a fault of its own.
func comparedFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var subjects []Subject
	for _, name := range []string{"old/iptables", "new/ipvs"} {
		s := Subject{Subject: name}
		for seed := range uint64(4) {
			o := recordtest.Rollout{Seed: seed + 1, Fallback: name != "old/iptables", Rollouts: 1}
			l := o.Lab()
			l.Run.ProgramSha256 = strings.Repeat("cd", 32)
			if o.Fallback {
				at := recordtest.ScenarioAt + 8*time.Second
				l.Event(at, record.KindProxy, "node-2", "bundled", "the proxy on node-2 was killed", "state", "killed")
				l.Faults = append(l.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: at + time.Millisecond, To: at + 300*time.Millisecond, Class: record.Refused})
			}
			s.Runs = append(s.Runs, writeCompared(t, dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), seed+1), o.Start(l)))
		}
		subjects = append(subjects, s)
	}
	c, err := New("rollout", subjects, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Command = "hitless compare rollout --subject old/iptables --subject new/ipvs --runs 4 --set rollouts=1"
	if err := Write(dir, c, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeCompared puts a run with its reports into the folder of a comparison.
func writeCompared(t testing.TB, dir, name string, l *recordtest.Lab) Run {
	t.Helper()
	h := l.Write(t)
	folder := filepath.Join(dir, name)
	if err := os.CopyFS(filepath.Join(folder, "history"), os.DirFS(h.Dir())); err != nil {
		t.Fatal(err)
	}
	r, origin, err := reports.Seal(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	return RunOf(r, filepath.Join(name, reports.ReportFile), origin.HistorySha256)
}

func comparisonFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{File, PageFile, SummaryFile} {
		files[name] = string(testfiles.Read(t, dir, name)[0])
	}
	return files
}

func TestComparisonForms(t *testing.T) {
	dir := comparedFolder(t)
	files := comparisonFiles(t, dir)
	c, err := Read(t.Context(), filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	if err := testfiles.ValidateJSON(t, Schema, []byte(files[File])); err != nil {
		t.Errorf("the comparison breaks its schema: %v", err)
	}
	var terminal bytes.Buffer
	if err := WriteTerminal(&terminal, c); err != nil {
		t.Fatal(err)
	}
	testfiles.Golden(t, "compare.terminal.txt", terminal.Bytes())
	testfiles.Golden(t, "compare.md", []byte(files[SummaryFile]))
	page := files[PageFile]
	testfiles.Golden(t, "compare.page.txt", []byte(testfiles.Outline(page)))
	if found := regexp.MustCompile(`(?i)(https?:|//[a-z]|src=|@import|url\([^#]|<link [^>]*href="[^d])[^\n]{0,60}`).FindString(page); found != "" {
		t.Errorf("the page asks for something from outside: %s", found)
	}
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			if !strings.Contains(page, `href="`+pageOf(r.Report)+`"`) || !strings.Contains(page, `>`+units.Thousands(r.Dropped)+`</td>`) {
				t.Errorf("the page lacks the run %+v", r)
			}
		}
	}
}

// A copied folder gives the same files again, also those of the runs. Red twin: with another run the files differ.
func TestAComparisonCanBeComputedAgain(t *testing.T) {
	dir := comparedFolder(t)
	before := comparisonFiles(t, dir)
	copied := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(copied, "new-ipvs-2", reports.ReportFile)
	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}
	if _, err := Again(t.Context(), copied, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range comparisonFiles(t, copied) {
		if text != before[name] {
			t.Errorf("%s is another in the copied folder", name)
		}
	}
	if _, err := os.Stat(report); err != nil {
		t.Errorf("the run's reports were not made again: %v", err)
	}
	other := recordtest.Rollout{Seed: 2, Rollouts: 1}
	l := other.Lab()
	l.Run.ProgramSha256 = strings.Repeat("cd", 32)
	writeCompared(t, copied, "other", other.Start(l))
	if err := os.Rename(filepath.Join(copied, "new-ipvs-2"), filepath.Join(copied, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(copied, "other"), filepath.Join(copied, "new-ipvs-2")); err != nil {
		t.Fatal(err)
	}
	if _, err := Again(t.Context(), copied, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range comparisonFiles(t, copied) {
		if text == before[name] {
			t.Errorf("%s does not show that a run is another", name)
		}
	}
}

// A folder that was put together from runs of two programs is refused, until --mixed asks for it.
func TestAFolderOfTwoProgramsIsRefused(t *testing.T) {
	dir := comparedFolder(t)
	other := recordtest.Rollout{Seed: 2, Rollouts: 1, Fallback: true}
	l := other.Lab()
	l.Run.ProgramSha256 = strings.Repeat("ef", 32)
	if err := os.RemoveAll(filepath.Join(dir, "new-ipvs-2")); err != nil {
		t.Fatal(err)
	}
	writeCompared(t, dir, "new-ipvs-2", other.Start(l))
	c, err := Again(t.Context(), dir, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Verdict != analysis.Invalid || len(c.Differences) != 0 || !strings.Contains(c.Reasons[0], "efefefefefef (1 run of new/ipvs)") {
		t.Errorf("%s, %q, %d differences", c.Verdict, c.Reasons, len(c.Differences))
	}
	if c, err = Again(t.Context(), dir, nil, Options{Mixed: true, Against: "new/ipvs"}); err != nil {
		t.Fatal(err)
	}
	page := comparisonFiles(t, dir)[PageFile]
	if len(c.Differences) != 1 || c.Differences[0].Subject != "old/iptables" || c.Differences[0].Pairs != 4 || !strings.Contains(page, "--mixed") {
		t.Errorf("on request: %+v", c.Differences)
	}
	read, err := Read(t.Context(), filepath.Join(dir, File))
	if err != nil || said(read) != said(c) || read.Verdict != c.Verdict {
		t.Errorf("it was read again as %s: %v", said(read), err)
	}
	if _, err := Again(t.Context(), dir, nil, Options{Against: "unknown"}); err == nil {
		t.Error("an unknown reference was accepted")
	}
}

// A history of another run below the old seal is damage, and nothing is written.
func TestAComparisonOfAChangedRecordIsInvalid(t *testing.T) {
	dir := comparedFolder(t)
	other := recordtest.Rollout{Seed: 2, Rollouts: 1}
	writeCompared(t, dir, "other", other.Start(other.Lab()))
	before := comparisonFiles(t, dir)
	history := filepath.Join(dir, "new-ipvs-2", record.HistoryDir)
	if err := errors.Join(os.RemoveAll(history), os.Rename(filepath.Join(dir, "other", record.HistoryDir), history)); err != nil {
		t.Fatal(err)
	}
	if _, err := Again(t.Context(), dir, nil, Options{}); !record.IsDamaged(err) || !strings.Contains(err.Error(), "new/ipvs with seed 2") {
		t.Errorf("%v, want damage of new/ipvs with seed 2", err)
	}
	for name, text := range comparisonFiles(t, dir) {
		if text != before[name] {
			t.Errorf("%s was changed by a computation that failed", name)
		}
	}
}

func TestAComparisonWithoutItsRunsSaysSo(t *testing.T) {
	dir := comparedFolder(t)
	before := comparisonFiles(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "new-ipvs-3", "history")); err != nil {
		t.Fatal(err)
	}
	if _, err := Again(t.Context(), dir, nil, Options{}); err == nil || !strings.Contains(err.Error(), "new/ipvs with seed 3") || !strings.Contains(err.Error(), "copy the folder") {
		t.Errorf("%v", err)
	}
	for name, text := range comparisonFiles(t, dir) {
		if text != before[name] {
			t.Errorf("%s was changed by a computation that failed", name)
		}
	}
	if IsComparison(filepath.Join(dir, "new-ipvs-1")) || !IsComparison(dir) {
		t.Error("a folder of a comparison is not told from a run's")
	}
}

// The start time of a subject does not move its losses on the shared axis.
func TestRunsShareAnAxisThatBeginsWithTheScenario(t *testing.T) {
	o := recordtest.Rollout{Seed: 3, Rollouts: 1}
	draw := func(delay time.Duration) ([]chart.Row, *course) {
		l := o.Start(o.Lab())
		for i := range l.Events {
			l.Events[i].At += delay
		}
		for i := range l.Attempts {
			l.Attempts[i].Intended += delay
			l.Attempts[i].Start += delay
		}
		a, err := analysis.New(l.Write(t))
		if err != nil {
			t.Fatal(err)
		}
		c := &Comparison{Subjects: []Subject{subject("a", 1)}}
		line, _, _ := c.comparedTimeline([][]runCourse{{{c.Subjects[0].Runs[0], courseOf(a)}}})
		return line.Rows, courseOf(a)
	}
	early, course := draw(0)
	late, _ := draw(7300 * time.Millisecond)
	if len(early) == 0 || len(early) != len(late) {
		t.Fatalf("%d rows, later %d", len(early), len(late))
	}
	for i := range early {
		if !slices.EqualFunc(early[i].Areas, late[i].Areas, func(a, b chart.Area) bool { return a == b }) {
			t.Errorf("the row %s moved:\n%+v\n%+v", early[i].Name, early[i].Areas, late[i].Areas)
		}
	}
	if course.from >= 0 || course.cut {
		t.Errorf("the run begins at %v and its scenario never began (%v)", course.from, course.cut)
	}
	dropped := 0
	for at, n := range course.counts {
		if dropped += n.dropped; n.dropped > 0 && at < 0 {
			t.Errorf("%d dropped at %v, before the scenario", n.dropped, at)
		}
	}
	if dropped == 0 {
		t.Error("the run dropped nothing")
	}
}

// The table beside the drawing has the losses of the runs, and the drawing has their share of the attempts.
func TestTheDrawingOfAComparisonHasItsLosses(t *testing.T) {
	dir := comparedFolder(t)
	c, err := Read(t.Context(), filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	subjects := make([][]runCourse, len(c.Subjects))
	for i, s := range c.Subjects {
		for _, r := range s.Runs {
			a, err := analysisOf(dir, s.Subject, r, nil)
			if err != nil {
				t.Fatal(err)
			}
			subjects[i] = append(subjects[i], runCourse{r, courseOf(a)})
		}
	}
	line, lost, most := c.comparedTimeline(subjects)
	dropped := map[string]int{}
	for _, l := range lost {
		dropped[fmt.Sprint(l.Subject, l.Seed)] += l.Dropped
	}
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			if n := dropped[fmt.Sprint(s.Subject, r.Seed)]; n != r.Dropped {
				t.Errorf("%s, seed %d: the table has %d dropped, the run %d", s.Subject, r.Seed, n, r.Dropped)
			}
		}
	}
	if most != 100 {
		t.Errorf("a full row is %d, of 100 attempts a second", most)
	}
	runs, drawn := 0, 0
	for _, s := range c.Subjects {
		runs += len(s.Runs)
	}
	for _, row := range line.Rows {
		if row.Kind != "run" {
			continue
		}
		drawn++
		if !slices.ContainsFunc(row.Areas, func(a chart.Area) bool { return a.Class == "attempted" && a.Outline != "" }) {
			t.Errorf("%s of %s has no outline of its attempts", row.Name, row.Node)
		}
	}
	if drawn != runs || runs == 0 {
		t.Errorf("%d of %d runs are drawn", drawn, runs)
	}
}

func TestChanges(t *testing.T) {
	with := func(name string, kinds ...analysis.FailureKind) Subject {
		s := subject(name, 0, 0)
		for _, k := range kinds {
			s.Runs[1].Failures = append(s.Runs[1].Failures, analysis.Failures{Lane: k.Lane, Class: k.Class, Event: k.Event, Connections: 7})
		}
		return s
	}
	kinds := map[string]analysis.FailureKind{"new": {Lane: "b", Class: "reset", Event: "proxy killed"}, "gone": {Lane: "a", Class: "refused"}, "stays": {Lane: "a", Class: "reset", Event: "pod exited"}}
	c, err := New("rollout", []Subject{with("first", kinds["gone"], kinds["stays"]), with("other"), with("last", kinds["stays"], kinds["new"])}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, change := range c.Changes() {
		words = append(words, change.Word())
		if change.Kind != kinds[change.Word()] {
			t.Errorf("%s is %s", change.Kind, change.Word())
		}
	}
	if !slices.Equal(words, []string{"new", "gone", "stays"}) {
		t.Errorf("the order of changes: %v", words)
	}
	for _, write := range []func(io.Writer, *Comparison) error{WriteTerminal, WriteMarkdown} {
		var b bytes.Buffer
		if err := write(&b, c); err != nil || !strings.Contains(b.String(), `new with last: reset after "proxy killed" on b: 7 in 1 of 2 runs.`) ||
			!strings.Contains(b.String(), "gone: refused, unexplained, on a: first had 7 in 1 of 2 runs.") {
			t.Errorf("%v:\n%s", err, b.String())
		}
	}
}

// Failures of an invalid run are neither new nor gone. The run does not count among the runs of its subject either.
func TestOnlyValidRunsChange(t *testing.T) {
	invalid := func(s sub) sub { return s.judged("fail invalid") }
	other := analysis.FailureKind{Lane: "web", Class: "misrouted", Event: "pod exited"}
	c := compared(t, Options{}, invalid(lost("a", 5, 7).failing(1, "reset", "")), invalid(lost("b", 5, 7).failing(1, other.Class, other.Event)))
	changes := c.Changes()
	if len(changes) != 1 || changes[0].Word() != "stays" || changes[0].Seen[0] != (Seen{5, 1, 1}) || changes[0].Seen[1] != (Seen{5, 1, 1}) {
		t.Errorf("%+v", changes)
	}
	var page bytes.Buffer
	if err := c.writePage(&page, withoutCourses(c)); err != nil || strings.Contains(page.String(), other.Class) {
		t.Errorf("the page has the failures of an invalid run: %v", err)
	}
	page.Reset()
	c = compared(t, Options{}, lost("a", 5).judged("invalid"), lost("b", 5).judged("invalid"))
	if err := c.writePage(&page, withoutCourses(c)); err != nil || !strings.Contains(page.String(), "No connection failed in any run that can be trusted.") {
		t.Errorf("the page of invalid runs says that no connection failed: %v", err)
	}
}

// The good attempts that a thinned record has together are as many in the drawing.
func TestAThinnedRunIsDrawnWithAllOfItsAttempts(t *testing.T) {
	o := recordtest.Rollout{Seed: 2, Fallback: true, Rollouts: 1}
	l := o.Start(o.Lab())
	drawn := map[bool]int{}
	for thinned, h := range map[bool]*record.History{false: l.Write(t), true: l.Thinned(t, 0)} {
		a, err := analysis.New(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range courseOf(a).counts {
			drawn[thinned] += n.attempts
		}
	}
	if drawn[true] != drawn[false] || drawn[true] == 0 {
		t.Errorf("%d attempts are drawn of a thinned record, %d of the whole one", drawn[true], drawn[false])
	}
}

// Where not all runs fit, each subject has its share of them, and what one does not need the others have.
func TestEachSubjectIsDrawn(t *testing.T) {
	runs := func(numbers ...int) (all [][]runCourse) {
		for _, n := range numbers {
			all = append(all, make([]runCourse, n))
		}
		return all
	}
	for _, c := range []struct{ runs, want []int }{{[]int{50, 50}, []int{20, 20}}, {[]int{60, 3}, []int{37, 3}}, {[]int{20, 20}, []int{20, 20}}, {[]int{41, 41, 41}, []int{14, 13, 13}}} {
		if got := firstRuns(runs(c.runs...)); !slices.Equal(got, c.want) {
			t.Errorf("of %v runs %v are drawn, want %v", c.runs, got, c.want)
		}
	}
}

// withoutCourses are the runs of a comparison without anything to draw.
func withoutCourses(c *Comparison) (subjects [][]runCourse) {
	for _, s := range c.Subjects {
		var runs []runCourse
		for _, r := range s.Runs {
			runs = append(runs, runCourse{r, &course{to: time.Second}})
		}
		subjects = append(subjects, runs)
	}
	return subjects
}

// A comparison of many long runs stays below 5 MB, and says what it does not draw.
func TestThePageOfAComparisonStaysSmall(t *testing.T) {
	const length = 990
	c := &Comparison{Scenario: "soak"}
	var subjects [][]runCourse
	for _, name := range []string{"a", "b"} {
		s := subject(name, make([]int, 50)...)
		var runs []runCourse
		for _, r := range s.Runs {
			one := &course{to: length * time.Second, counts: map[time.Duration]*courseCount{}}
			for i := range length {
				at := time.Duration(i) * time.Second
				one.counts[at] = &courseCount{attempts: 5000, dropped: 2000 + i, delayed: 1000 + i}
				one.steps = append(one.steps, chart.Span{From: at, To: at + time.Second/2, Name: "step", Text: "a step of very many"})
				one.events = append(one.events, record.Event{At: at, Body: record.Step{}, Text: strings.Repeat("text ", 20)})
			}
			runs = append(runs, runCourse{r, one})
		}
		c.Subjects, subjects = append(c.Subjects, s), append(subjects, runs)
	}
	var page bytes.Buffer
	if err := c.writePage(&page, subjects); err != nil {
		t.Fatal(err)
	}
	if page.Len() >= 5e6 || !strings.Contains(page.String(), "40 of 100 runs are drawn, the first of each subject") {
		t.Errorf("the page of %d runs has %d bytes, or does not say what it leaves out", 2*len(subjects[0]), page.Len())
	}
}

package reports

import (
	"bytes"
	"flag"
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

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./reports -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s changed (-golden +now; go test ./reports -update accepts it):\n%s", name, diff)
	}
}

func TestForms(t *testing.T) {
	labs := pageLabs()
	for _, name := range slices.Sorted(maps.Keys(labs)) {
		h, r, origin := labs[name].built(t)
		for ending, write := range map[string]func(io.Writer) error{
			"terminal.txt": func(w io.Writer) error { return WriteTerminal(w, r, origin) },
			"summary.md":   func(w io.Writer) error { return WriteMarkdown(w, r, origin) },
			"junit.xml":    func(w io.Writer) error { return WriteJUnit(w, r, origin) },
			"report.json":  func(w io.Writer) error { return WriteJSON(w, r) },
			"lanes.txt":    func(w io.Writer) error { return WriteLanes(w, r, h) },
			"svg":          func(w io.Writer) error { return WriteSVG(w, PictureOf(r), ThemeAuto) },
			"page.txt": func(w io.Writer) error {
				var b bytes.Buffer
				err := WritePage(&b, r, h)
				io.WriteString(w, outlineOf(b.String()))
				return err
			},
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"."+ending, b.Bytes())
		}
	}
}

var (
	embedded = regexp.MustCompile(`(?s)<(style|script)[^>]*>.*?</(style|script)>`)
	shapes   = regexp.MustCompile(`<(rect|path|line|pattern|defs|/pattern|/defs|/rect)[^>]*>`)
	numbers  = regexp.MustCompile(` (x|y|dx|dy|x1|x2|y1|y2|width|height|viewBox)="[^"]*"`)
)

// outlineOf is the structure and the text of a page, without drawings, style and script.
func outlineOf(page string) string {
	page = embedded.ReplaceAllString(page, "<$1/>")
	page = shapes.ReplaceAllString(page, "")
	page = numbers.ReplaceAllString(page, "")
	page = strings.NewReplacer("<tr", "\n<tr", "<text", "\n<text", "<title", "\n<title").Replace(page)
	return regexp.MustCompile(`\n\s*\n+`).ReplaceAllString(page, "\n")
}

// pageFrom is a history's report and its page.
func pageFrom(t *testing.T, h *record.History) (*Report, string) {
	t.Helper()
	r, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WritePage(&b, r, h); err != nil {
		t.Fatal(err)
	}
	return r, b.String()
}

// A page needs nothing but itself.
func TestThePageNeedsNoNetwork(t *testing.T) {
	for name, s := range pageLabs() {
		r, page := pageFrom(t, s.write(t))
		if found := regexp.MustCompile(`(?i)(https?:|//[a-z]|src=|@import|url\([^#]|<link [^>]*href="[^d])[^\n]{0,60}`).FindString(page); found != "" {
			t.Errorf("%s: the page asks for something from outside: %s", name, found)
		}
		for _, must := range []string{"Content-Security-Policy", r.headline(), thousands(r.Totals.Attempts), r.Run.InputsSha256, "prefers-color-scheme:dark", "@media print"} {
			if !strings.Contains(html.UnescapeString(page), must) {
				t.Errorf("%s: the page lacks %q", name, must)
			}
		}
	}
}

// Nothing that was measured is no zero: the page of such a record does not say that nothing was dropped.
func TestThePageOfNothingClaimsNothing(t *testing.T) {
	good := rolling{seed: 1, fallback: true, rollouts: 1}
	for say, s := range map[string]*lab{"no connection was measured": newLab(3), "no connection was dropped or delayed": good.start(good.lab())} {
		_, page := pageFrom(t, s.write(t))
		if !strings.Contains(page, say) || strings.Count(page, ">no connection was ") != 1 {
			t.Errorf("the page lacks %q", say)
		}
	}
}

// Whatever the texts of a history are, they are text on the page.
func TestTextsAreNeverMarkup(t *testing.T) {
	o := rolling{seed: 1, rollouts: 1}
	s := o.lab()
	const evil = `</script><script>alert(1)</script><img src=x onerror="y">`
	s.run.Command, s.run.Scenario, s.run.Subject.Name = evil, evil, evil
	s.event(30*time.Second, record.KindStep, evil, evil, evil, "state", "end")
	for i := range s.pods {
		s.pods[i].name = evil
	}
	r, page := pageFrom(t, o.start(s).write(t))
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
	o := rolling{seed: 2, rollouts: 2}
	s := o.start(o.lab())
	var seen map[string]string
	for range 3 {
		dir := t.TempDir()
		if _, err := WriteAll(dir, s.write(t)); err != nil {
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
	r, err := ReadReport(file)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := WriteJSON(&again, r); err != nil || again.String() != seen[ReportFile] {
		t.Errorf("report.json changes when it is read and written: %v", err)
	}
}

// A summary stays short and a terminal's table readable, however bad the run was.
func TestBadRunsHaveShortSummaries(t *testing.T) {
	o := rolling{seed: 1, fallback: true, rollouts: 4}
	s := o.lab()
	for i := range 400 {
		from := scenarioAt + rolloutFor/100*time.Duration(i)
		s.faults = append(s.faults, fault{anyLane: true, from: from, to: from + rolloutFor/500, class: faultClasses[i%10]})
	}
	for range 20 {
		s.event(scenarioAt, record.KindGuard, "", "conntrack", "conntrack is | full")
	}
	h := o.start(s).write(t)
	r, err := Build(h)
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
	if err := WriteTerminal(&terminal, r, record.Origin{}); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(terminal.Bytes(), []byte("\n")); lines > 100 || !strings.Contains(terminal.String(), " seconds more with ") {
		t.Errorf("the terminal shows %d lines, and must say what it leaves out:\n%s", lines, terminal.String())
	}
}

package reports

import (
	"errors"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// cutRun is the folder of a run with a record and without a seal.
func cutRun(t *testing.T) string {
	t.Helper()
	o := recordtest.Failing()
	dir := filepath.Dir(o.Start(o.Lab()).Write(t).Dir())
	if err := os.Remove(filepath.Join(dir, record.SealFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return dir
}

// A run that ended early has all reports, and each says so with the time. They are the same when they are made again.
func TestAPartialRunHasAllReports(t *testing.T) {
	for reason, head := range map[string]string{record.Interrupted: "INTERRUPTED at +", "the guest ended before its history was complete": "INVALID at +"} {
		dir := cutRun(t)
		r, origin, err := SealEarly(dir, reason, nil)
		if err != nil || r == nil || r.Verdict != analysis.Invalid || r.Early == nil || r.Totals.Attempts == 0 || !strings.HasPrefix(r.Heading(), head) {
			t.Fatalf("%+v, %v", r, err)
		}
		checkSchema(t, r)
		before := map[string]string{}
		for _, name := range []string{ReportFile, PageFile, JUnitFile, SummaryFile} {
			text := html.UnescapeString(string(testfiles.Read(t, dir, name)[0]))
			if before[name] = text; name != ReportFile && !(strings.Contains(text, r.Headline()) && strings.Contains(text, r.Heading())) {
				t.Errorf("%s says nothing of the early end:\n%.400s", name, text)
			}
		}
		if strings.Contains(before[PageFile], `href="logs/"`) || !strings.Contains(before[PageFile], "Run it again") || strings.Contains(before[PageFile], "has no phase") {
			t.Error("the page links to logs that are not kept, tells the early end twice, or does not say what to do")
		}
		if !strings.Contains(before[PageFile], `<body class="partial">`) || !strings.Contains(before[SummaryFile], r.Heading()) {
			t.Error("the numbers look like those of a complete run")
		}
		h, err := record.OpenHistory(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := WriteAll(dir, h); err != nil {
			t.Fatal(err)
		}
		for name, text := range before {
			if now := html.UnescapeString(string(testfiles.Read(t, dir, name)[0])); now != text {
				t.Errorf("%s changes when it is made again", name)
			}
		}
		if f, err := OpenRun(dir, nil); err != nil || f.Origin.HistorySha256 != origin.HistorySha256 || f.Report.Early == nil {
			t.Errorf("%+v, %v", f, err)
		}
		if read, _, err := ReadSealed(os.DirFS(dir), dir, nil); err != nil || read.Early == nil || read.Early.Reason != reason {
			t.Errorf("%+v, %v", read, err)
		}
	}
}

// The twin: a complete run has no early end, and its page is not grey.
func TestACompleteRunIsNotPartial(t *testing.T) {
	r, page := pageFrom(t, recordtest.PageLabs()["pass"].Write(t))
	if r.Early != nil || strings.Contains(page, `class="partial"`) || r.Heading() != "PASS" {
		t.Errorf("%+v, %s", r.Early, r.Heading())
	}
}

// A record of which nothing can be read has a seal, and no report.
func TestAnUnreadablePartialRunHasOnlyASeal(t *testing.T) {
	dir := cutRun(t)
	if err := os.WriteFile(filepath.Join(dir, record.HistoryDir, record.EventsFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, record.HistoryDir, record.AttemptsFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, origin, err := SealEarly(dir, record.Interrupted, nil)
	if err != nil || r != nil || origin.HistorySha256 == "" {
		t.Errorf("%+v, %+v, %v", r, origin, err)
	}
	var names []string
	all, err := os.ReadDir(dir)
	for _, f := range all {
		names = append(names, f.Name())
	}
	if want := []string{record.HistoryDir, record.SealFile}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the folder has %v, want %v: %v", names, want, err)
	}
}

// A run that ended early replaces another such run, and never one that did not.
func TestAnEarlyEndReplacesNoCompleteRun(t *testing.T) {
	for early, want := range map[bool]bool{true: false, false: true} {
		dir := cutRun(t)
		if early {
			if _, _, err := SealEarly(dir, record.Interrupted, nil); err != nil {
				t.Fatal(err)
			}
		} else if _, _, err := Seal(dir, nil); err != nil {
			t.Fatal(err)
		}
		if c := (&Claim{dir: dir}); c.hasRun() != want {
			t.Errorf("early %v: the folder holds a run to keep: %v", early, c.hasRun())
		}
	}
	if (&Claim{dir: t.TempDir()}).hasRun() {
		t.Error("an empty folder holds a run")
	}
}

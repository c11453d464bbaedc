package reports

import (
	"bytes"
	"html"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports/page"
)

// No format of a run that passes with excused losses hides them: each has their number, path, window and reason.
func TestAPassShowsWhatWasExcused(t *testing.T) {
	s := recordtest.Disturbed(recordtest.OffAt + 18*time.Second)
	s.Excuse(record.PathNode, "node-2", recordtest.OffAt, recordtest.OffAt+recordtest.ExcusedFor, 0)
	s.Lose("node-2", recordtest.OffAt, recordtest.OffAt+18*time.Second, record.ConnectTimeout)
	s.Measure()
	h, r, origin := built(t, s)
	if r.Verdict != analysis.Pass || r.ExcusedAttempts() != r.Totals.Dropped || r.Totals.Dropped < 500 || len(r.Excused) != 1 {
		t.Fatalf("%s %q", r.Verdict, r.Reasons)
	}
	sentence := r.Excused[0].Sentence()
	for _, must := range []string{"over node-2", "+40.000 s", "+60.000 s", "because the power was cut", "failed attempts"} {
		if !strings.Contains(sentence, must) {
			t.Errorf("%q lacks %q", sentence, must)
		}
	}
	if !strings.Contains(r.Reasons[0], "all in the loss that is unavoidable because the power was cut") {
		t.Errorf("the first reason is %q", r.Reasons[0])
	}
	for name, write := range map[string]func(io.Writer) error{
		"terminal": func(w io.Writer) error { return WriteTerminal(w, r, origin) },
		"summary":  func(w io.Writer) error { return WriteMarkdown(w, r, origin) },
		"JUnit":    func(w io.Writer) error { return WriteJUnit(w, r, origin) },
		"page":     func(w io.Writer) error { return page.Write(w, r, h) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(html.UnescapeString(b.String()), sentence) {
			t.Errorf("%s lacks %q", name, sentence)
		}
	}
}

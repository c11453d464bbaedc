package reports

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The columns of a run of hours have a width, and the time axis begins after the longest name, whose middle is left out where it is too long.
func TestPicturesOfLongRunsAndNames(t *testing.T) {
	draw := func(seconds int, name string) string {
		p := Picture{To: float64(seconds), Paths: []PicturePath{{Name: name}}, Dropped: make([]int, seconds)}
		p.Dropped[seconds/2] = 7
		var b strings.Builder
		if err := WriteSVG(&b, p, ThemeLight); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if text := draw(4*3600, "node-1"); strings.Contains(text, `width="-`) || strings.Contains(text, `width="0.0"`) || !strings.Contains(text, `class="dropped"`) {
		t.Errorf("a column without a width:\n%s", text)
	}
	for name, left := range map[string]string{"node-1": "90", "default/frontend node-1": "170", strings.Repeat("long-", 20): "260"} {
		if text := draw(60, name); !strings.Contains(text, `class="line" x1="`+left+`"`) || !strings.Contains(text, ">"+name+"</t") {
			t.Errorf("the axis of %q does not begin at %s, or the name is not there:\n%s", name, left, text)
		}
	}
}

// The picture and the lanes of a run that was skipped or interrupted say so, and call its figures partial results.
func TestPartialRunsSayWhatTheyAre(t *testing.T) {
	skipped := analysis.SkippedReport(recordtest.NewLab(1).Run, "this kernel has no IPVS")
	_, cut, _ := built(t, recordtest.PageLabs()["fail"])
	cut.Verdict, cut.Early = analysis.Invalid, &analysis.EarlyReport{At: 40, Reason: record.Interrupted}
	for want, r := range map[string]*analysis.Report{"Skipped: this kernel has no IPVS; partial results: no connection was measured.": skipped,
		"INTERRUPTED at +40.000 s; partial results: 1,233 of 9,000 connections failed": cut} {
		lines := strings.Join(strings.Fields(lossText(r)), " ")
		if summary := strings.Join(PictureOf(r).Summary, " "); !strings.HasPrefix(lines, want) || summary != lines || strings.Contains(lines, ".;") {
			t.Errorf("%q and %q, want %q", lines, summary, want)
		}
	}
}

// A picture is well-formed XML in each theme, shows each path and counts what the report counts.
func TestPicture(t *testing.T) {
	_, r, _ := built(t, recordtest.PageLabs()["fail"])
	p := PictureOf(r)
	if len(p.Paths) != 3 || len(p.Paths[0].Outages) != 1 || len(p.Events) == 0 {
		t.Fatalf("%d paths, %d events", len(p.Paths), len(p.Events))
	}
	// A node that the load balancer has left answers nothing, and is not shown as if it did.
	outage, away, other := p.Paths[0].Outages[0], p.Paths[0].Away, p.Paths[1].Away
	if len(away) != 1 || away[0].From < outage.From || away[0].To != r.Run.Duration || len(other) != 2 || other[0].To > outage.From || other[1].From < outage.To {
		t.Errorf("%s is lost from %.1f s to %.1f s; the load balancer sends it nothing in %v, and %s in %v", p.Paths[0].Name, outage.From, outage.To, away, p.Paths[1].Name, other)
	}
	dropped := 0
	for _, n := range p.Dropped {
		dropped += n
	}
	if dropped != r.Totals.Dropped {
		t.Errorf("%d dropped in the columns, %d in the report", dropped, r.Totals.Dropped)
	}
	for _, theme := range []Theme{ThemeLight, ThemeDark, ThemeAuto} {
		var b strings.Builder
		if err := WriteSVG(&b, p, theme); err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", theme, err)
			}
		}
		for _, word := range []string{"node-1", "node-3", "1,233 of 9,000", "load balancer: node-2, node-3"} {
			if !strings.Contains(b.String(), word) {
				t.Errorf("%s: the picture lacks %q", theme, word)
			}
		}
		if (theme == ThemeAuto) != strings.Contains(b.String(), "prefers-color-scheme") {
			t.Errorf("%s: wrong colours", theme)
		}
	}
	if WriteSVG(io.Discard, p, "pink") == nil || WriteSVG(io.Discard, Picture{}, ThemeLight) == nil {
		t.Error("an unknown theme or an empty window was drawn")
	}
}

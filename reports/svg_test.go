package reports

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hitless/hitless/record/recordtest"
)

// A picture is well-formed XML in each theme, shows each path and counts what the report counts.
func TestPicture(t *testing.T) {
	_, r, _ := built(t, recordtest.PageLabs()["fail"])
	p := PictureOf(r)
	if len(p.Paths) != 3 || len(p.Paths[0].Outages) != 1 || len(p.Events) == 0 {
		t.Fatalf("%d paths, %d events", len(p.Paths), len(p.Events))
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

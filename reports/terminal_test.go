package reports

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hitless/hitless/record/recordtest"
)

// The text fits the terminal, has colours only where they are asked for, and at most five outages.
func TestTheTerminalFits(t *testing.T) {
	h := soakLab(60, 800_000_000).Write(t)
	r, _ := pageFrom(t, h)
	origin, err := h.Origin()
	if err != nil {
		t.Fatal(err)
	}
	origin.Command = ""
	for _, c := range []Terminal{{Width: 60}, {Width: 60, Colour: true}, {Width: 120}} {
		var b bytes.Buffer
		if err := c.Write(&b, r, origin); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if strings.Contains(text, "\x1b[") != c.Colour || !strings.Contains(text, "FAIL") {
			t.Errorf("%+v: colours and verdict:\n%s", c, text)
		}
		plain := strings.NewReplacer("\x1b[1;31m", "", "\x1b[0m", "").Replace(text)
		for line := range strings.Lines(plain) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n >= c.Width {
				t.Errorf("%+v: a line of %d letters: %q", c, n, line)
			}
		}
		joined := strings.Join(strings.Fields(plain), " ")
		for _, want := range []string{r.Headline(), "more in report.json"} {
			if !strings.Contains(joined, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%+v lacks %q:\n%s", c, want, text)
			}
		}
		if !regexp.MustCompile(`dropped [·▁-█]`).MatchString(joined) {
			t.Errorf("%+v lacks the picture of what was dropped:\n%s", c, text)
		}
		if n := strings.Count(joined, " of lane "); n != 5 {
			t.Errorf("%d outages are listed", n)
		}
		for _, detail := range []string{"history sha256", "p99", "detection floor"} {
			if strings.Contains(text, detail) {
				t.Errorf("%q is for those who develop hitless:\n%s", detail, text)
			}
		}
	}
}

// The twin: with Verbose all details are there.
func TestTheTerminalHasDetailsOnRequest(t *testing.T) {
	_, r, origin := built(t, recordtest.PageLabs()["pass"])
	var b bytes.Buffer
	if err := (Terminal{Verbose: true}).Write(&b, r, origin); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"history sha256   " + origin.HistorySha256, "self-test", "canary", "p99"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

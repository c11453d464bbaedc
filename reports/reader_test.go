package reports

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports/page"
)

var (
	notShown = regexp.MustCompile(`(?s)<(style|script|template|title)\b.*?</(style|script|template|title)>|aria-label="[^"]*"`)
	markup   = regexp.MustCompile(`<[^>]*>`)
)

// shownText is what a reader sees of a page.
func shownText(page string) string {
	return html.UnescapeString(markup.ReplaceAllString(notShown.ReplaceAllString(page, ""), ""))
}

// The page tells the loss, its cause and its end, each once.
func TestThePageStatesEachFactOnce(t *testing.T) {
	r, page := pageFrom(t, recordtest.PageLabs()["fail"].Write(t))
	text := shownText(page)
	o := r.Worst()
	for _, fact := range []string{r.Headline(), "all " + units.Thousands(r.Totals.Dropped) + " explained", r.ProofText()} {
		if n := strings.Count(text, fact); n != 1 {
			t.Errorf("%d times on the page: %s", n, fact)
		}
	}
	if len(o.Edges) == 0 {
		t.Error("the worst outage has no edge")
	}
	for _, clause := range o.Edges {
		if n := strings.Count(text, clause.Clause); n != 1 {
			t.Errorf("%d times on the page: %s", n, clause.Clause)
		}
	}
}

// The vertical axis ends at the attempted rate, whatever was lost: a fifth of the attempts has a fifth of the height.
func TestTheAxisIsTheAttemptedRate(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: 40 * time.Second, To: 40200 * time.Millisecond, Class: record.Reset})
	r, page := pageFrom(t, o.Start(s).Write(t))
	if r.Totals.Dropped == 0 {
		t.Fatal("nothing was lost")
	}
	rate := 0.0
	for _, l := range r.Lanes {
		rate += l.Rate
	}
	drops := page[strings.Index(page, `id="drops"`):]
	drops = drops[:strings.Index(drops, "</svg>")]
	if !strings.Contains(drops, fmt.Sprintf(">%s</text>", units.Thousands(int(rate)))) || !strings.Contains(drops, "connections per second") || !strings.Contains(drops, `class="attempted"`) {
		t.Errorf("the axis does not end at %v, is not named, or the attempts are not drawn:\n%.600s", rate, drops)
	}
	bars := regexp.MustCompile(`<rect class="dropped"[^>]* height="([0-9.]+)"><title>\S+ s: (\d+) of`).FindAllStringSubmatch(drops, -1)
	if len(bars) == 0 {
		t.Errorf("no second with a loss is drawn:\n%.600s", drops)
	}
	for _, m := range bars {
		height, _ := strconv.ParseFloat(m[1], 64)
		n, _ := strconv.ParseFloat(m[2], 64)
		if want := n / rate * 100; math.Abs(height-want) > 2.1 {
			t.Errorf("%v of %v have a height of %v, want %v", n, rate, height, want)
		}
	}
}

// The proof of the detector is a row of its own, and no loss.
func TestTheSelfTestIsNoFault(t *testing.T) {
	_, page := pageFrom(t, recordtest.PageLabs()["pass"].Write(t))
	if !strings.Contains(page, ">self-test</text>") || strings.Contains(page, ">faults</text>") || strings.Contains(page, `class="fault `) {
		t.Error("the injected faults of the proof look like faults")
	}
	lanes := page[strings.Index(page, `id="numbers-title"`):strings.Index(page, "Dropped per second")]
	if strings.Contains(lanes, "canary") || !strings.Contains(page[strings.Index(page, `class="self-test"`):], "canary") {
		t.Error("the control lanes are not apart from the measured ones")
	}
}

// Health, pods and membership are drawn as states with words.
func TestStatesAreIntervals(t *testing.T) {
	_, page := pageFrom(t, recordtest.PageLabs()["fail"].Write(t))
	for _, want := range []string{">health of node-1</text>", ">balancer, node-1</text>", "state-bad", "state-changing", "state-good", ": terminating from ", ": fail 503 from ", ": in from "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, `class="health mark"`) || strings.Contains(page, `class="balancer mark"`) || strings.Contains(page, `class="pod mark"`) {
		t.Error("states are drawn as ticks")
	}
}

// Next steps of a failed report name the settings that are not the default, and the version that fixes a known bug. A subject that has
// the fix gets no such version.
func TestTheNextStepNamesTheFix(t *testing.T) {
	for version, fixed := range map[string]bool{"v1.25.3": true, "v1.26.0": false} {
		o := recordtest.Failing()
		s := o.Lab()
		s.Run.Subject = record.Subject{Name: "kube-proxy", Version: version, Mode: "iptables"}
		s.Run.Parameters = map[string]string{"replicas": "1"}
		r := reportOf(t, o.Start(s))
		if text := strings.Join(r.NextSteps, "\n"); strings.Contains(text, "Fixed in kube-proxy v1.26 (KEP-1669") != fixed || !strings.Contains(text, "Run it with the defaults instead of ") {
			t.Errorf("%s: %q", version, r.NextSteps)
		}
	}
	if r := reportOf(t, recordtest.Calm()); len(r.NextSteps) != 0 && r.Totals.Dropped == 0 {
		t.Errorf("a run without failures has a next step: %q", r.NextSteps)
	}
}

// soakLab is a long run with an outage in each of many rollouts.
func soakLab(outages int, every time.Duration) *recordtest.Lab {
	o := recordtest.Clean()
	s := o.Lab()
	for i := range outages {
		from := recordtest.ScenarioAt + time.Duration(i)*every
		s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: from, To: from + every/4, Class: record.Reset})
	}
	return o.Start(s)
}

// Many outages are a line for each cause, and a page of bounded size.
func TestManyOutagesAreGroupedByCause(t *testing.T) {
	r, page := pageFrom(t, soakLab(240, 200*time.Millisecond).Write(t))
	groups := r.Causes()
	if n := len(r.AllOutages()); n < 100 || len(groups) > 12 {
		t.Fatalf("%d outages in %d groups", n, len(groups))
	}
	sum := 0
	for _, g := range groups {
		sum += g.Outages
		if !strings.Contains(html.UnescapeString(page), g.Text()) {
			t.Errorf("the page lacks %q", g.Text())
		}
	}
	if sum != len(r.AllOutages()) || strings.Contains(page, `class="group" open`) {
		t.Errorf("the groups have %d of %d outages, or are open", sum, len(r.AllOutages()))
	}
	if n := strings.Count(page, `class="outage"`); n != 60 || len(page) > 5<<20 || !strings.Contains(page, " more in report.json.") {
		t.Errorf("%d outages in %d bytes", n, len(page))
	}
}

// contrast is that of two colours, by WCAG.
func contrast(a, b [3]float64) float64 {
	light := func(c [3]float64) float64 {
		var l [3]float64
		for i, v := range c {
			if v <= 0.04045 {
				l[i] = v / 12.92
			} else {
				l[i] = math.Pow((v+0.055)/1.055, 2.4)
			}
		}
		return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2]
	}
	x, y := light(a)+0.05, light(b)+0.05
	return max(x, y) / min(x, y)
}

func colour(t *testing.T, text string) (c [3]float64) {
	t.Helper()
	if len(text) == 4 {
		text = "#" + strings.Repeat(text[1:2], 2) + strings.Repeat(text[2:3], 2) + strings.Repeat(text[3:4], 2)
	}
	for i := range c {
		n, err := strconv.ParseUint(text[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c[i] = float64(n) / 255
	}
	return c
}

// deuteranopia is what a reader without green cones sees of a colour (Machado 2009).
func deuteranopia(c [3]float64) (seen [3]float64) {
	for i, row := range [3][3]float64{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}} {
		seen[i] = min(1, max(0, row[0]*c[0]+row[1]*c[1]+row[2]*c[2]))
	}
	return seen
}

// Text has a contrast of 4.5, marks of 3, in both schemes; and ok and dropped differ by more than their hue.
func TestColoursAreReadable(t *testing.T) {
	schemes := regexp.MustCompile(`:root\{([^}]*)\}`).FindAllStringSubmatch(page.Style, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d colour schemes", len(schemes))
	}
	for i, s := range schemes {
		of := map[string][3]float64{}
		for _, m := range regexp.MustCompile(`--([a-z]+):(#[0-9a-f]+)`).FindAllStringSubmatch(s[1], -1) {
			of[m[1]] = colour(t, m[2])
		}
		for _, text := range []string{"fg", "soft", "pass", "fail", "invalid", "skipped", "member"} {
			for _, ground := range []string{"bg", "panel"} {
				if c := contrast(of[text], of[ground]); c < 4.5 {
					t.Errorf("scheme %d: text %s on %s has a contrast of %.2f", i, text, ground, c)
				}
			}
		}
		for _, mark := range []string{"ok", "dropped", "delayed", "probe", "member", "answers", "last", "proof", "soft"} {
			for _, ground := range []string{"bg", "band"} {
				if c := contrast(of[mark], of[ground]); c < 3 && !(mark == "answers" && ground == "band") {
					t.Errorf("scheme %d: mark %s on %s has a contrast of %.2f", i, mark, ground, c)
				}
			}
		}
		if c := contrast(deuteranopia(of["ok"]), deuteranopia(of["dropped"])); c < 1.9 {
			t.Errorf("scheme %d: without green cones ok and dropped have a contrast of %.2f", i, c)
		}
	}
	for _, hatched := range []string{"path.dropped{fill:url(#lost)}", "rect.dropped{fill:url(#lost)}"} {
		if !strings.Contains(page.Style, hatched) {
			t.Errorf("the style lacks %s", hatched)
		}
	}
}

// A text for an issue has the sentence, the chart, the command and the hash.
func TestTheSnippetIsComplete(t *testing.T) {
	h, r, origin := built(t, recordtest.PageLabs()["fail"])
	var b bytes.Buffer
	if err := page.Write(&b, r, h); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(b.String(), `<template id="snippet">`)
	text, _, _ := strings.Cut(rest, "</template>")
	for _, want := range []string{r.Headline(), "▁", origin.Command, origin.HistorySha256, r.Causes()[0].Text()} {
		if !strings.Contains(html.UnescapeString(text), want) {
			t.Errorf("the snippet lacks %q:\n%s", want, text)
		}
	}
}

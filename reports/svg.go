package reports

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hitless/hitless/reports/chart"
)

// Theme is a colour scheme of WriteSVG.
type Theme string

// The themes. ThemeAuto follows the viewer's preference.
const (
	ThemeLight Theme = "light"
	ThemeDark  Theme = "dark"
	ThemeAuto  Theme = "auto"
)

// The measures of a picture, in pixels.
const (
	svgWidth   = 840
	svgLeft    = 90 // of the time axis, at least
	svgMost    = 260
	svgRight   = 16
	svgLine    = 17 // of text
	svgBar     = 22
	svgColumns = 44 // the height of the columns of dropped attempts
	svgLetter  = 6.4
	svgName    = 6.7 // a letter of a row's name
	svgMarks   = 10  // lines of events; later ones are left out
)

// svgColours are those of the report's page.
var svgColours = map[Theme]string{
	ThemeLight: ".bg{fill:#fff}.fg{fill:#1c2330}.soft{fill:#5c6675}.ok{fill:#3f9c6c}.dropped{fill:#d03a34}.delayed{fill:#e09a1f}.away{fill:#c6ccd5}.line{stroke:#d9dee6}.mark{stroke:#5c6675}",
	ThemeDark:  ".bg{fill:#12161d}.fg{fill:#e4e8ee}.soft{fill:#97a2b2}.ok{fill:#3f9668}.dropped{fill:#ef5a50}.delayed{fill:#eda938}.away{fill:#3d4756}.line{stroke:#2d3541}.mark{stroke:#97a2b2}",
}

// WriteSVG draws a picture. The result needs no fonts or scripts, and is a function of its arguments.
func WriteSVG(w io.Writer, p Picture, theme Theme) error {
	colours, known := svgColours[theme]
	switch {
	case theme == ThemeAuto:
		colours = svgColours[ThemeLight] + "@media (prefers-color-scheme:dark){" + svgColours[ThemeDark] + "}"
	case !known:
		return fmt.Errorf("drawing a picture: no theme %q; the themes are light, dark and auto", theme)
	case p.To <= p.From:
		return fmt.Errorf("drawing a picture: the window ends at %.3f s, before its start at %.3f s", p.To, p.From)
	}
	d := svgDrawing{p: p, y: svgLine + 10, left: p.left(), drawn: map[string]bool{}}
	d.text("fg title", 10, d.y, "start", p.Title)
	d.events()
	d.paths()
	d.columns()
	d.legend()
	for _, line := range p.Summary {
		d.y += svgLine
		d.text("fg", 10, d.y, "start", line)
	}
	height := d.y + 12
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"><title>%s</title><style>text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:11px}.title{font-weight:600;font-size:13px}%s</style>
<rect class="bg" width="%d" height="%d"/>
%s</svg>
`, svgWidth, height, svgWidth, height, html.EscapeString(p.Title+": "+strings.Join(p.Summary, " ")), colours, svgWidth, height, d.body.String())
	return err
}

// svgDrawing is a picture under way; y is the bottom of what is drawn, left the beginning of the time axis.
type svgDrawing struct {
	p     Picture
	y     int
	left  float64
	body  bytes.Buffer
	drawn map[string]bool // classes of bars
}

// left is wide enough for the longest name of a path, up to a bound.
func (p Picture) left() float64 {
	longest := 0
	for _, path := range p.Paths {
		longest = max(longest, utf8.RuneCountInString(path.Name))
	}
	return max(svgLeft, min(svgMost, float64(longest)*svgName+16))
}

func (d *svgDrawing) x(at float64) float64 {
	at = min(max(at, d.p.From), d.p.To)
	return d.left + (at-d.p.From)/(d.p.To-d.p.From)*(svgWidth-d.left-svgRight)
}

func (d *svgDrawing) text(class string, x float64, y int, anchor, text string) {
	d.titled(class, x, y, anchor, text, "")
}

// titled is text with a title, which may be empty.
func (d *svgDrawing) titled(class string, x float64, y int, anchor, text, title string) {
	if title != "" {
		title = "<title>" + html.EscapeString(title) + "</title>"
	}
	fmt.Fprintf(&d.body, "<text class=%q x=\"%.1f\" y=\"%d\" text-anchor=%q>%s%s</text>\n", class, x, y, anchor, title, html.EscapeString(text))
}

// name writes the name of a path, whose middle is left out where it is longer than its place.
func (d *svgDrawing) name(name string) {
	short, title := chart.Shortened(name, int((d.left-16)/svgName)), ""
	if short != name {
		title = name
	}
	d.titled("fg", d.left-8, d.y+svgBar-8, "end", short, title)
}

func (d *svgDrawing) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.body, "<rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class, x, y, width, height)
}

// events writes each event on the first line where it meets no other. Labels near the right edge end at their mark.
func (d *svgDrawing) events() {
	type label struct {
		PictureEvent
		line     int
		from, to float64
	}
	var labels []label
	lines := 0
	for _, e := range d.p.Events {
		l := label{PictureEvent: e, from: d.x(e.At)}
		l.to = l.from + float64(utf8.RuneCountInString(e.Text)+1)*svgLetter
		if l.to > svgWidth-4 {
			l.from, l.to = l.from-(l.to-l.from), l.from
		}
		for slices.ContainsFunc(labels, func(o label) bool { return o.line == l.line && l.from < o.to+8 && o.from < l.to+8 }) {
			l.line++
		}
		if l.line < svgMarks {
			labels, lines = append(labels, l), max(lines, l.line+1)
		}
	}
	bottom := d.y + lines*svgLine + 8 + len(d.p.Paths)*svgBar + svgColumns
	for _, l := range labels {
		x, y := d.x(l.At), d.y+(l.line+1)*svgLine
		fmt.Fprintf(&d.body, "<line class=\"mark\" stroke-dasharray=\"2 3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", x, x, y-10, bottom)
		if l.from < x {
			d.text("soft", x-4, y, "end", l.Text)
		} else {
			d.text("soft", x+4, y, "start", l.Text)
		}
	}
	d.y += lines*svgLine + 8
}

func (d *svgDrawing) paths() {
	for _, path := range d.p.Paths {
		d.name(path.Name)
		d.bar("ok", d.p.From, d.p.To)
		for _, away := range path.Away {
			d.bar("away", away.From, away.To)
		}
		for _, o := range path.Outages {
			class := "dropped"
			if o.Delayed {
				class = "delayed"
			}
			d.bar(class, o.From, o.To)
		}
		d.y += svgBar
	}
}

// bar is a part of the bar of a path. One outside of the picture's time is left out.
func (d *svgDrawing) bar(class string, from, to float64) {
	if x, end := d.x(from), d.x(to); to > d.p.From && from < d.p.To {
		d.rect(class, x, float64(d.y+4), max(end-x, 1), svgBar-8)
		d.drawn[class] = true
	}
}

// svgLegend has the meaning of the colours, in the order of the legend.
var svgLegend = []struct{ class, text string }{
	{"ok", "answered"}, {"dropped", "dropped"}, {"delayed", "delayed"}, {"away", "no attempt: the load balancer sends none here"},
}

// legend explains the colours of the bars in a line.
func (d *svgDrawing) legend() {
	d.y += svgLine
	x := d.left
	for _, l := range svgLegend {
		if !d.drawn[l.class] {
			continue
		}
		d.rect(l.class, x, float64(d.y-9), 10, 10)
		d.text("soft", x+15, d.y, "start", l.text)
		x += 15 + float64(utf8.RuneCountInString(l.text)+2)*svgName
	}
}

// columns draws the dropped attempts of each second, and the time axis below them.
func (d *svgDrawing) columns() {
	base, most := float64(d.y+svgColumns), 0
	for i, n := range d.p.Dropped {
		if at := float64(i); at+1 > d.p.From && at < d.p.To {
			most = max(most, n)
		}
	}
	d.text("fg", d.left-8, d.y+svgColumns-12, "end", "dropped/s")
	for i, n := range d.p.Dropped {
		if from, to := d.x(float64(i)), d.x(float64(i+1)); n > 0 && to > from {
			height := float64(n) / float64(most) * (svgColumns - 8)
			d.rect("dropped", from, base-height, max(to-from-0.6, 0.8), height)
		}
	}
	if most > 0 {
		d.text("soft", d.left-8, d.y+svgColumns, "end", fmt.Sprintf("0 to %d", most))
	}
	fmt.Fprintf(&d.body, "<line class=\"line\" x1=\"%.0f\" x2=\"%d\" y1=\"%.0f\" y2=\"%.0f\"/>\n", d.left, svgWidth-svgRight, base, base)
	d.y += svgColumns + svgLine
	step := 5.0
	for (d.p.To-d.p.From)/step > 12 {
		step *= 2
	}
	for at := 0.0; d.x(d.p.Zero+at) < svgWidth-30; at += step {
		d.text("soft", d.x(d.p.Zero+at), d.y-4, "middle", fmt.Sprintf("+%.0f s", at))
	}
	d.y += 4
}

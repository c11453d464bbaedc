package reports

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports/page"
)

// WriteBenchmark writes runs in the Go benchmark format, for benchstat: a line for each measured lane of each run, named
// by scenario, subject, mode and lane, below the parameters that must be equal for a comparison. Runs of several
// seeds are several samples. What a run says that cannot be trusted is no sample: it is only named, with its reason.
func WriteBenchmark(w io.Writer, runs []*RunFolder) error {
	var b bytes.Buffer
	before := ""
	for _, f := range runs {
		r := f.Report
		if head := fmt.Sprintf("parameters: %s\nclock: %s\n", parameterText(r), r.Run.Clock); head != before {
			b.WriteString(head)
			before = head
		}
		if r.Verdict != analysis.Pass && r.Verdict != analysis.Fail {
			fmt.Fprintf(&b, "# %s, seed %d, is %s: %s\n", r.Run.Scenario, r.Run.Seed, r.Verdict, oneLine(analysis.FirstOf(r.Reasons...)))
			continue
		}
		for _, l := range r.Lanes {
			fmt.Fprintf(&b, "%s 1 %d dropped %d delayed %s worst-gap-sec %s p50-sec %s p99-sec %s max-sec\n", benchmarkName(r, l), l.Dropped, l.Delayed,
				figure(worstGapMs(l)/1e3), figure(l.Latency.P50), figure(l.Latency.P99), figure(l.Latency.Max))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// worstGapMs is the upper bound of the lane's longest outage; 0 without one.
func worstGapMs(l analysis.LaneReport) float64 {
	worst := 0.0
	for _, o := range l.Outages {
		worst = max(worst, o.UpperMs)
	}
	return worst
}

// figure writes a number without the noise of its last binary digits: to the nanosecond, where it is seconds.
func figure(v float64) string { return strconv.FormatFloat(math.Round(v*1e9)/1e9, 'f', -1, 64) }

func parameterText(r *analysis.Report) string {
	var words []string
	for _, s := range page.Settings(r) {
		words = append(words, s.Key+"="+s.Value)
	}
	return oneLine(strings.Join(words, " "))
}

// benchmarkName is one word; a slash in it would begin another part of the name.
func benchmarkName(r *analysis.Report, l analysis.LaneReport) string {
	part := func(text string) string {
		return strings.Map(func(c rune) rune {
			if unicode.IsSpace(c) || unicode.IsControl(c) || c == '/' {
				return '_'
			}
			return c
		}, text)
	}
	scenario := part(r.Run.Scenario)
	if first, size := utf8.DecodeRuneInString(scenario); size > 0 {
		scenario = string(unicode.ToUpper(first)) + scenario[size:]
	}
	name := "Benchmark" + scenario + "/subject=" + part(strings.TrimSuffix(r.Subject.Name+"@"+r.Subject.Version, "@"))
	if r.Subject.Mode != "" {
		name += "/mode=" + part(r.Subject.Mode)
	}
	return name + "/lane=" + part(l.Name)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

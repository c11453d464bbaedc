package reports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"go.yaml.in/yaml/v3"
	"golang.org/x/perf/benchfmt"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

var startOfRuns = time.Date(2026, 11, 21, 9, 30, 0, 250e6, time.UTC)

// folders are the runs that the golden files show, in the order of their names.
func folders(t *testing.T) []*RunFolder {
	t.Helper()
	var runs []*RunFolder
	labs := recordtest.PageLabs()
	for i, name := range []string{"fail", "invalid", "mixed", "pass"} {
		_, r, origin := built(t, labs[name])
		runs = append(runs, &RunFolder{Report: r, Origin: origin, Started: startOfRuns.Add(time.Duration(i) * time.Hour)})
	}
	return runs
}

func written(t *testing.T, write func(io.Writer, []*RunFolder) error, runs []*RunFolder) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, runs); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// metric is a sample as the parser of a time-series database reads it.
type metric struct {
	value float64
	at    int64 // ms
}

func parseMetrics(t *testing.T, text []byte) map[string][]metric {
	t.Helper()
	all := map[string][]metric{}
	p := textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text[:min(len(text), 2000)])
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, at, value := p.Series()
		if at == nil {
			t.Fatal("a sample has no time stamp")
		}
		var l labels.Labels
		p.Labels(&l)
		key := l.String()
		if before := all[key]; len(before) > 0 && before[len(before)-1].at >= *at {
			t.Fatalf("%s: the time stamps do not grow", key)
		}
		all[key] = append(all[key], metric{value, *at})
	}
}

func TestOpenMetricsAreReadByAParser(t *testing.T) {
	runs := folders(t)
	text := written(t, WriteOpenMetrics, runs)
	if !bytes.HasSuffix(text, []byte("\n# EOF\n")) {
		t.Error("the text does not end with # EOF")
	}
	testfiles.Golden(t, "all.openmetrics.txt", text)
	all := parseMetrics(t, text)
	for _, f := range runs {
		r := f.Report
		for _, l := range r.Lanes {
			series := all[fmt.Sprintf(`{__name__="hitless_dropped_total", lane="%s", run="%s"}`, l.Name, f.id())]
			if len(series) != len(l.DroppedPerSecond)+1 || series[0] != (metric{0, f.Started.UnixMilli()}) {
				t.Fatalf("%d samples for %d seconds, the first one is %v", len(series), len(l.DroppedPerSecond), series[0])
			}
			last := series[len(series)-1]
			if want := f.Started.UnixMilli() + int64(len(l.DroppedPerSecond))*1000; int(last.value) != l.Dropped || last.at != want {
				t.Errorf("the counter ends with %+v, want %d at %d", last, l.Dropped, want)
			}
		}
		for _, c := range record.Classes() {
			series := all[fmt.Sprintf(`{__name__="hitless_attempts_total", class="%s", run="%s"}`, c, f.id())]
			if len(series) != 1 || int(series[0].value) != r.Totals.ByClass[c.String()] {
				t.Errorf("%s: %v, want %d", c, series, r.Totals.ByClass[c.String()])
			}
		}
	}
}

// Whatever the names are, the text can be read; a day is thinned out, and nothing of it is lost.
func TestOpenMetricsOfStrangeAndLongRuns(t *testing.T) {
	f := folders(t)[0]
	l := &f.Report.Lanes[0]
	l.Name = "a \"lane\"\\ of\ntwo lines \xff {x=\"y\"} # EOF"
	f.Report.Subject.Version = "\n# EOF\n"
	l.DroppedPerSecond = make([]int, 86400)
	l.DroppedPerSecond[77777] = 5
	f.Report.Run.Duration = 86400
	longest, grown := 0, 0.0
	for key, series := range parseMetrics(t, written(t, WriteOpenMetrics, []*RunFolder{f})) {
		if longest = max(longest, len(series)); strings.Contains(key, "hitless_dropped_total") {
			grown = max(grown, series[len(series)-1].value)
		}
	}
	if longest < mostSamples/2 || longest > mostSamples+1 || grown != 5 {
		t.Errorf("the longest series has %d samples, and the counter ends at %v", longest, grown)
	}
	if err := WriteOpenMetrics(io.Discard, []*RunFolder{f, f}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("the same run twice gave %v", err)
	}
	f.Started = time.Time{}
	if err := WriteOpenMetrics(io.Discard, []*RunFolder{f}); err == nil || !strings.Contains(err.Error(), HostFile) {
		t.Errorf("a run without a time gave %v", err)
	}
}

func TestBenchmarksAreReadByBenchfmt(t *testing.T) {
	runs := folders(t)
	runs[0].Report.Subject.Name, runs[0].Report.Subject.Mode = "kube proxy", "ipt/ables"
	text := written(t, WriteBenchmark, runs)
	testfiles.Golden(t, "all.benchmark.txt", text)
	var results []*benchfmt.Result
	for reader := benchfmt.NewReader(bytes.NewReader(text), "golden"); reader.Scan(); {
		switch r := reader.Result().(type) {
		case *benchfmt.Result:
			results = append(results, r.Clone())
		case *benchfmt.SyntaxError:
			t.Errorf("%v", r)
		}
	}
	trusted := []*RunFolder{runs[0], runs[2], runs[3]} // an invalid run is no sample
	if len(results) != len(trusted) {
		t.Fatalf("%d results for %d runs that can be trusted:\n%s", len(results), len(trusted), text)
	}
	for i, got := range results {
		l := trusted[i].Report.Lanes[0]
		for unit, want := range map[string]float64{"dropped": float64(l.Dropped), "delayed": float64(l.Delayed), "worst-gap-sec": trusted[i].Report.WorstGapMs() / 1e3,
			"p50-sec": l.Latency.P50, "max-sec": l.Latency.Max} {
			if value, ok := got.Value(unit); !ok || math.Abs(value-want) > 1e-9 {
				t.Errorf("result %d: %s is %v, want %v", i, unit, value, want)
			}
		}
		if got.GetConfig("clock") != "virtual" || !strings.Contains(got.GetConfig("parameters"), "trafficPolicy=Local") {
			t.Errorf("result %d lacks its parameters: %v", i, got.Config)
		}
	}
	if name := results[0].Name.String(); name != "Rollout/subject=kube_proxy@v0.1.0/mode=ipt_ables/lane=web" {
		t.Errorf("the name is %s", name)
	}
}

func TestConformanceSaysWhatIsSupported(t *testing.T) {
	runs := folders(t)
	other := *runs[3].Report
	other.Subject.Mode = "nftables"
	runs = append(runs, &RunFolder{Report: &other, Origin: runs[3].Origin})
	text := written(t, WriteConformance, runs)
	testfiles.Golden(t, "all.conformance.yaml", text)
	var c struct {
		Kind, Date string
		Profiles   []struct {
			Name, Result                                         string
			Statistics                                           map[string]int
			SupportedFeatures, FailedFeatures, UndecidedFeatures []string
			Runs                                                 []map[string]any
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(bytes.ReplaceAll(text, []byte("Features:"), []byte("features:"))))
	if err := decoder.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if len(c.Profiles) != 2 || c.Date != "2026-11-21T12:30:00Z" {
		t.Fatalf("%+v", c)
	}
	ipvs, nft := c.Profiles[0], c.Profiles[1]
	// mixed and pass are the same feature with another seed: one that failed makes the feature failed.
	if ipvs.Result != "failure" || nft.Result != "success" || ipvs.Statistics["fail"] != 2 || ipvs.Statistics["invalid"] != 1 || ipvs.Statistics["pass"] != 1 {
		t.Errorf("results: %+v", c.Profiles)
	}
	for i, run := range ipvs.Runs {
		if run["reproduce"] != runs[i].Origin.Command || run["historySha256"] != runs[i].Origin.HistorySha256 {
			t.Errorf("run %d cannot be repeated: %v", i, run)
		}
	}
}

func TestAFeatureIsSupportedOnlyIfAllOfItsRunsPassed(t *testing.T) {
	for want, verdicts := range map[string][]analysis.Verdict{"success": {analysis.Pass, analysis.Pass}, "failure": {analysis.Pass, analysis.Fail, analysis.Invalid}, "partial": {analysis.Pass, analysis.Invalid}, "partial ": {analysis.Skipped}} {
		p := conformedProfile{byFeature: map[string][]analysis.Verdict{"rollout": verdicts}, inTheirTurn: []string{"rollout"}}
		p.conclude()
		if p.Result != strings.TrimSpace(want) || len(p.Supported)+len(p.Failed)+len(p.Undecided) != 1 || (len(p.Supported) == 1) != (want == "success") {
			t.Errorf("%v: %+v", verdicts, p)
		}
	}
}

func TestWhenARunWasStarted(t *testing.T) {
	dir := t.TempDir()
	if at, err := StartedAt(os.DirFS(dir)); err != nil || !at.IsZero() {
		t.Errorf("without a host.json: %v, %v", at, err)
	}
	testfiles.Write(t, dir, HostFile, []byte(`{"started":"2026-11-21T09:30:00Z","wallSeconds":60}`))
	if at, err := StartedAt(os.DirFS(dir)); err != nil || !at.Equal(startOfRuns.Truncate(time.Second)) {
		t.Errorf("%v, %v", at, err)
	}
	file := testfiles.Write(t, dir, HostFile, []byte(`{"wallSeconds":60}`))
	if err := os.Chtimes(file, startOfRuns, startOfRuns); err != nil {
		t.Fatal(err)
	}
	if at, err := StartedAt(os.DirFS(dir)); err != nil || !at.Equal(startOfRuns.Add(-time.Minute)) {
		t.Errorf("of an older version: %v, %v", at, err)
	}
	testfiles.Write(t, dir, HostFile, []byte(`{`))
	if _, err := StartedAt(os.DirFS(dir)); err == nil || !strings.Contains(err.Error(), HostFile) {
		t.Errorf("a damaged one gave %v", err)
	}
}

func TestASkippedRunHasAReport(t *testing.T) {
	r := analysis.SkippedReport(recordtest.NewLab(1).Run, "this kernel has no IPVS")
	if r.Verdict != analysis.Skipped || r.Verdict.ExitCode() != 2 || r.Reasons[0] != "this kernel has no IPVS" {
		t.Errorf("%+v", r)
	}
	checkSchema(t, r)
	for _, write := range []func(io.Writer, *analysis.Report, record.Origin) error{WriteTerminal, WriteMarkdown, WriteJUnit} {
		var b strings.Builder
		if err := write(&b, r, record.Origin{}); err != nil || !strings.Contains(b.String(), "IPVS") {
			t.Errorf("%v: %s", err, b.String())
		}
	}
}

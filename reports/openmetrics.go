package reports

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/hitless/hitless/record"
)

// mostSamples is how many samples a series has at most: a day gets one for every 24 s, an hour one for each second.
const mostSamples = 3600

// WriteOpenMetrics writes runs as OpenMetrics text with time stamps, for a time-series database to load. Counters grow
// over the run, from its start by the host's clock; everything else has the time stamp of its end. The label `run`
// tells runs apart: the first 12 digits of the hash of its history. Each run must have a Started, and none stands twice.
func WriteOpenMetrics(w io.Writer, runs []*RunFolder) error {
	seen := map[string]bool{}
	for _, r := range runs {
		if r.Started.IsZero() {
			return fmt.Errorf("writing OpenMetrics: no %s tells when the run with the history %s was started, and samples need a time: give it with --started 2026-01-31T12:00:00Z", HostFile, r.id())
		}
		if seen[r.id()] {
			return fmt.Errorf("writing OpenMetrics: the run with the history %s was given twice", r.id())
		}
		seen[r.id()] = true
	}
	var b bytes.Buffer
	m := metrics{b: &b}
	m.family("hitless_run", "info", "", "what was run", runs, (*metrics).runInfo)
	m.family("hitless_attempts", "counter", "", "attempts, at the end of the run", runs, (*metrics).attempts)
	m.family("hitless_dropped", "counter", "", "dropped attempts, by the time at which they were intended", runs, (*metrics).dropped)
	m.family("hitless_latency_seconds", "summary", "seconds", "from the intended start to the whole answer, of ok and delayed attempts", runs, (*metrics).latency)
	m.family("hitless_outages", "gauge", "", "outages on a path", runs, (*metrics).outages)
	m.family("hitless_worst_gap_seconds", "gauge", "seconds", "upper bound of the longest outage, 0 without one", runs, (*metrics).worstGap)
	m.family("hitless_detection_floor_seconds", "gauge", "seconds", "smallest outage that is proved to be seen; missing until proved", runs, (*metrics).floor)
	m.family("hitless_unexplained_ratio", "gauge", "ratio", "share of the failed attempts that no event explains", runs, (*metrics).unexplained)
	b.WriteString("# EOF\n")
	_, err := w.Write(b.Bytes())
	return err
}

// id is short, and differs between runs that saw different things.
func (r *RunFolder) id() string { return r.Origin.HistorySha256[:min(12, len(r.Origin.HistorySha256))] }

// metrics writes families of samples.
type metrics struct {
	b    *bytes.Buffer
	name string
	run  *RunFolder
}

func (m *metrics) family(name, kind, unit, help string, runs []*RunFolder, samples func(*metrics)) {
	m.name = name
	fmt.Fprintf(m.b, "# TYPE %s %s\n", name, kind)
	if unit != "" {
		fmt.Fprintf(m.b, "# UNIT %s %s\n", name, unit)
	}
	fmt.Fprintf(m.b, "# HELP %s %s\n", name, help)
	for _, m.run = range runs {
		samples(m)
	}
}

// sample writes a line; at is seconds from the start of the run, labels are names and values in turn.
func (m *metrics) sample(suffix string, value, at float64, labels ...string) {
	fmt.Fprintf(m.b, "%s%s{run=\"%s\"", m.name, suffix, m.run.id())
	for i := 0; i+1 < len(labels); i += 2 {
		fmt.Fprintf(m.b, `,%s="%s"`, labels[i], labelText.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")))
	}
	stamp := float64(m.run.Started.UnixMilli())/1e3 + at
	fmt.Fprintf(m.b, "} %s %s\n", figure(value), strconv.FormatFloat(stamp, 'f', 3, 64))
}

var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (m *metrics) runInfo() {
	r := m.run.Report
	m.sample("_info", 1, r.Run.Duration, "scenario", r.Run.Scenario, "subject", r.Subject.Name, "version", r.Subject.Version,
		"mode", r.Subject.Mode, "verdict", string(r.Verdict), "seed", strconv.FormatInt(r.Run.Seed, 10), "clock", r.Run.Clock,
		"kernel", r.Run.Kernel.Named(), "inputs_sha256", r.Run.InputsSha256, "history_sha256", m.run.Origin.HistorySha256)
}

func (m *metrics) attempts() {
	r := m.run.Report
	for _, c := range record.Classes() {
		m.sample("_total", float64(r.Totals.ByClass[c.String()]), r.Run.Duration, "class", c.String())
	}
}

func (m *metrics) dropped() {
	for _, l := range m.run.Report.Lanes {
		step := (len(l.DroppedPerSecond) + mostSamples - 1) / mostSamples
		m.sample("_total", 0, 0, "lane", l.Name)
		sum := 0
		for i, n := range l.DroppedPerSecond {
			sum += n
			if (i+1)%step == 0 || i+1 == len(l.DroppedPerSecond) {
				m.sample("_total", float64(sum), float64(i+1), "lane", l.Name)
			}
		}
	}
}

func (m *metrics) latency() {
	for _, l := range m.run.Report.Lanes {
		for _, q := range [...]struct {
			quantile string
			value    float64
		}{{"0.5", l.Latency.P50}, {"0.99", l.Latency.P99}, {"1.0", l.Latency.Max}} {
			m.sample("", q.value, m.run.Report.Run.Duration, "lane", l.Name, "quantile", q.quantile)
		}
	}
}

func (m *metrics) outages() {
	for _, l := range m.run.Report.Lanes {
		for _, p := range l.Paths {
			m.sample("", float64(l.OutagesOn(p.Node)), m.run.Report.Run.Duration, "lane", l.Name, "node", p.Node)
		}
	}
}

func (m *metrics) worstGap() {
	m.sample("", m.run.Report.WorstGapMs()/1e3, m.run.Report.Run.Duration)
}

func (m *metrics) floor() {
	if ms := m.run.Report.DetectionFloor.Ms; ms != nil {
		m.sample("", *ms/1e3, m.run.Report.Run.Duration)
	}
}

func (m *metrics) unexplained() {
	m.sample("", m.run.Report.Unexplained.Share, m.run.Report.Run.Duration)
}

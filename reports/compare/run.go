package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Run is one run of a comparison.
type Run struct {
	Seed       int64            `json:"seed"`
	Verdict    analysis.Verdict `json:"verdict"`
	Attempts   int              `json:"attempts"`
	Dropped    int              `json:"dropped"`
	Delayed    int              `json:"delayed"`
	WorstGapMs float64          `json:"worstGapMs"` // upper bound of the longest outage; 0 without one
	// OutageSeconds is the time in which a measured lane had an outage; nil in files of version 1, and without a report.
	OutageSeconds *float64 `json:"outageSeconds,omitempty"`
	// LongestOutage is that of WorstGapMs; nil without one, and in older files.
	LongestOutage *Outage `json:"longestOutage,omitempty"`
	// DetectionFloorMs is the shortest outage about which the run makes a claim; 0 if it is not known.
	DetectionFloorMs float64 `json:"detectionFloorMs,omitempty"`
	// NotFollowed is the number of proxies that did not follow the recovery check; nil without a check.
	NotFollowed *int   `json:"notFollowed,omitempty"`
	Report      string `json:"report"` // path of its report.json, relative to compare.json
	// HistorySha256 is the hash of the history. With a virtual clock, a repetition with the same program has the same hash.
	HistorySha256 string `json:"historySha256,omitempty"`
	// ProgramSha256, Kernel and ControlPlane say how the run was made. They are missing where the record does not have them.
	ProgramSha256 string         `json:"programSha256,omitempty"` // of hitless
	Kernel        *record.Kernel `json:"kernel,omitempty"`
	ControlPlane  string         `json:"controlPlane,omitempty"`
	Programs      string         `json:"programs,omitempty"` // record.ProgramsReleased or empty
	Tools         string         `json:"tools,omitempty"`    // record.Run.Tools
	// Failures are the failed attempts by kind; see Comparison.Changes.
	Failures []analysis.Failures `json:"failures,omitempty"`
	// Made is when and with what the run was made. Only results that are kept have it: the comparison does not depend on the time.
	Made *record.Made `json:"made,omitempty"`
}

// Outage is an outage of a run, as its report has it.
type Outage struct {
	At    float64 `json:"at"`             // of the first failed attempt, in seconds since the start of the run
	Node  string  `json:"node,omitempty"` // empty if the attempts took several
	Cause string  `json:"cause"`          // the report's sentence
}

// RunOf makes the entry of a run from its report. path is the path of report.json relative to compare.json; history is the hash of
// the history.
func RunOf(r *analysis.Report, path, history string) Run {
	seconds, kernel := outageSeconds(r), r.Run.Kernel
	run := Run{Seed: r.Run.Seed, Verdict: r.Verdict, Attempts: r.Totals.Attempts, Dropped: r.Totals.Dropped,
		Delayed: r.Totals.Delayed, OutageSeconds: &seconds, Report: path, HistorySha256: history,
		ProgramSha256: r.Run.ProgramSha256, Kernel: &kernel, ControlPlane: r.Run.ControlPlane, Programs: r.Run.Programs, Tools: r.Run.Tools, Failures: r.Failures()}
	if o := r.Worst(); o != nil {
		run.WorstGapMs, run.LongestOutage = o.UpperMs, &Outage{At: o.From, Node: o.Node, Cause: o.Cause.Text}
	}
	if r.DetectionFloor.Ms != nil {
		run.DetectionFloorMs = *r.DetectionFloor.Ms
	}
	if r.Recovery != nil && r.Recovery.Checks > 0 {
		failed := len(r.Recovery.Failed())
		run.NotFollowed = &failed
	}
	return run
}

// InvalidRun is the entry of a run without a report, because the run ended early.
func InvalidRun(seed int64, path, history string) Run {
	return Run{Seed: seed, Verdict: analysis.Invalid, Report: path, HistorySha256: history}
}

// valid reports whether the run says something about its subject.
func (r Run) valid() bool { return r.Verdict == analysis.Pass || r.Verdict == analysis.Fail }

// trusted are the valid runs.
func (s Subject) trusted() []Run { return valid(s.Runs) }

func valid(runs []Run) []Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return !r.valid() })
}

// outageSeconds is the time in which at least one measured lane had an outage, in seconds. An outage counts from its first failed
// attempt for its upper bound.
func outageSeconds(r *analysis.Report) float64 {
	outages := r.AllOutages()
	slices.SortStableFunc(outages, func(a, b analysis.LaneOutage) int { return cmp.Compare(a.From, b.From) })
	sum, until := 0.0, math.Inf(-1)
	for _, o := range outages {
		to := o.From + o.UpperMs/1e3
		sum += max(0, to-max(until, o.From))
		until = max(until, to)
	}
	return math.Round(sum*1e3) / 1e3
}

// origins say how a run was made. An empty value means that the record does not have it.
var origins = [...]struct {
	name, plural string
	of           func(Run) string
}{
	{"program", "programs", func(r Run) string { return short(r.ProgramSha256) }},
	{kernelOrigin, "kernels", kernelText},
	{"control plane", "control planes", func(r Run) string { return r.ControlPlane }},
	{"source of programs", "sources of programs", func(r Run) string { return cmp.Or(r.Programs, notReleased) }},
	{"set of tools", "sets of tools", func(r Run) string { return cmp.Or(r.Tools, pinnedTools) }},
}

const kernelOrigin = "kernel"

// changedKernels has a sentence for each subject whose valid runs have several kernels.
func (c *Comparison) changedKernels() (texts []string) {
	for _, s := range c.Subjects {
		var kernels []string
		for _, r := range s.Runs {
			if k := cmp.Or(kernelText(r), notRecorded); r.valid() && !slices.Contains(kernels, k) {
				kernels = append(kernels, k)
			}
		}
		if len(kernels) > 1 {
			texts = append(texts, fmt.Sprintf("the runs of %s have different kernels: %s", s.Subject, strings.Join(kernels, ", ")))
		}
	}
	return texts
}

func short(sum string) string { return fmt.Sprintf("%.12s", sum) }

func kernelText(r Run) string {
	if r.Kernel == nil {
		return ""
	}
	return r.Kernel.String()
}

const (
	notRecorded = "not recorded"
	notReleased = "not released"
	pinnedTools = "the pinned one, or none"
)

// usual are values that are not worth a word where all runs have them.
var usual = []string{notReleased, pinnedTools}

// unlike has a sentence for each origin in which the valid runs differ. A value that is not recorded differs from one that is.
func (c *Comparison) unlike() (texts []string) {
	for _, o := range origins {
		if o.name == kernelOrigin && c.Kernels {
			texts = append(texts, c.changedKernels()...)
			continue
		}
		var values []string
		for _, s := range c.Subjects {
			runs := map[string]int{}
			for _, r := range s.Runs {
				if value := cmp.Or(o.of(r), notRecorded); r.valid() {
					if runs[value]++; !slices.Contains(values, value) {
						values = append(values, value)
					}
				}
			}
		}
		if len(values) < 2 {
			continue
		}
		var parts []string
		for _, value := range values {
			parts = append(parts, value+" ("+strings.Join(c.runsWith(o.of, value), ", ")+")")
		}
		texts = append(texts, fmt.Sprintf("the runs have different %s: %s", o.plural, strings.Join(parts, ", ")))
	}
	return texts
}

// runsWith counts the valid runs of each subject with a value.
func (c *Comparison) runsWith(of func(Run) string, value string) (texts []string) {
	for _, s := range c.Subjects {
		n := 0
		for _, r := range s.Runs {
			if r.valid() && cmp.Or(of(r), notRecorded) == value {
				n++
			}
		}
		if n > 0 {
			texts = append(texts, units.Plural(n, "run")+" of "+s.Subject)
		}
	}
	return texts
}

// originText says how the runs were made, and what of that is not recorded.
func (c *Comparison) originText() string {
	var parts []string
	for _, o := range origins {
		var values []string
		for _, s := range c.Subjects {
			for _, r := range s.Runs {
				if value := cmp.Or(o.of(r), notRecorded); r.valid() && !slices.Contains(values, value) {
					values = append(values, value)
				}
			}
		}
		if len(values) > 1 || len(values) == 1 && !slices.Contains(usual, values[0]) {
			parts = append(parts, o.name+" "+strings.Join(values, " and "))
		}
	}
	return strings.Join(parts, "; ")
}

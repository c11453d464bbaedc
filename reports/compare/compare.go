// Package compare pairs runs of several subjects by seed, tests whether they differ, and writes the comparison.
package compare

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
)

// Version is the version of compare.json.
const Version = 1

// leastPairs is the smallest number of pairs that a claim needs. With four runs on each side the smallest share that a
// permutation test can give is 2.9 % (2 of 70 arrangements); with three it is 10 %.
const leastPairs = 4

// Comparison is compare.json: subjects in the same scenario, with the same seeds.
type Comparison struct {
	SchemaVersion int        `json:"schemaVersion"`
	Scenario      string     `json:"scenario"`
	Command       string     `json:"command,omitempty"` // repeats the comparison
	Subjects      []Subject  `json:"subjects"`
	Difference    Difference `json:"difference"` // of dropped, the last subject against the first
	// Verdict is invalid when a run is invalid, or when a subject lacks a run of a seed. It is fail when the last subject
	// really drops more connections than the first. Otherwise it is pass, which claims nothing below four pairs.
	Verdict analysis.Verdict `json:"verdict"`
}

// Subject is one subject with its runs, in order of their seeds.
type Subject struct {
	Subject string `json:"subject"`
	Runs    []Run  `json:"runs"`
}

// Run is one run of a comparison.
type Run struct {
	Seed       int64            `json:"seed"`
	Verdict    analysis.Verdict `json:"verdict"`
	Attempts   int              `json:"attempts"`
	Dropped    int              `json:"dropped"`
	Delayed    int              `json:"delayed"`
	WorstGapMs float64          `json:"worstGapMs"` // upper bound of the longest outage; 0 without one
	Report     string           `json:"report"`     // path of its report.json, relative to compare.json
	// HistorySha256 is the hash of the history. With a virtual clock, a repetition with the same program has the same hash.
	HistorySha256 string `json:"historySha256,omitempty"`
	// Failures are the failed attempts by kind; see Comparison.Changes.
	Failures []Failures `json:"failures,omitempty"`
}

// Difference is the last subject's value minus the first subject's, as the median over the pairs of runs.
type Difference struct {
	Metric   string  `json:"metric"` // dropped (connections) or worstGapMs
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"` // 95 % confidence interval
	High     float64 `json:"high"`
	Real     *bool   `json:"real"` // null below four pairs
}

// RunOf makes the entry of a run from its report. path is the path of report.json relative to compare.json; history is the hash of
// the history.
func RunOf(r *analysis.Report, path, history string) Run {
	return Run{Seed: r.Run.Seed, Verdict: r.Verdict, Attempts: r.Totals.Attempts, Dropped: r.Totals.Dropped,
		Delayed: r.Totals.Delayed, WorstGapMs: r.WorstGapMs(), Report: path, HistorySha256: history, Failures: failuresOf(r)}
}

// InvalidRun is the entry of a run without a report, because the run ended early.
func InvalidRun(seed int64, path, history string) Run {
	return Run{Seed: seed, Verdict: analysis.Invalid, Report: path, HistorySha256: history}
}

// New pairs the runs of the subjects by seed, and keeps the order of the subjects. Fewer than two subjects, or a subject without
// a run, is an error. The result is deterministic, because the resampling has a fixed seed.
func New(scenario string, subjects []Subject) (*Comparison, error) {
	if len(subjects) < 2 {
		return nil, fmt.Errorf("comparing %s: %s given, two are needed", scenario, units.Plural(len(subjects), "subject"))
	}
	c := &Comparison{SchemaVersion: Version, Scenario: scenario}
	for _, s := range subjects {
		if len(s.Runs) == 0 {
			return nil, fmt.Errorf("comparing %s: %s has no run", scenario, s.Subject)
		}
		s.Runs = slices.SortedStableFunc(slices.Values(s.Runs), func(a, b Run) int { return cmp.Compare(a.Seed, b.Seed) })
		c.Subjects = append(c.Subjects, s)
	}
	c.Difference = c.Differences()[0]
	c.Verdict = c.judge()
	return c, nil
}

// Differences returns the differences of the last subject from the first: of dropped connections, then of the longest outage.
// They are zero without a pair.
func (c *Comparison) Differences() []Difference { return c.differencesOf(len(c.Subjects) - 1) }

// differencesOf returns the differences of a subject, by its number, from the first.
func (c *Comparison) differencesOf(subject int) []Difference {
	pairs := c.pairs(subject)
	all := []Difference{{Metric: "dropped"}, {Metric: "worstGapMs"}}
	for i, value := range [...]func(Run) float64{
		func(r Run) float64 { return float64(r.Dropped) },
		func(r Run) float64 { return r.WorstGapMs },
	} {
		first, last := make([]float64, len(pairs)), make([]float64, len(pairs))
		for k, p := range pairs {
			first[k], last[k] = value(p[0]), value(p[1])
		}
		all[i].fill(first, last)
	}
	return all
}

func (d *Difference) fill(first, last []float64) {
	if len(first) == 0 {
		return
	}
	differences := make([]float64, len(first))
	for i := range first {
		differences[i] = last[i] - first[i]
	}
	d.Estimate = median(differences)
	d.Low, d.High = bootstrapMedian(differences)
	if len(first) >= leastPairs {
		isReal := permutationShare(first, last) <= 0.05 && (d.Low > 0 || d.High < 0)
		d.Real = &isReal
	}
}

// pairs returns the pairs of runs of the first subject and of another, by its number, in order of the seeds.
func (c *Comparison) pairs(subject int) [][2]Run {
	first, last := c.Subjects[0].Runs, c.Subjects[subject].Runs
	var pairs [][2]Run
	for _, a := range first {
		for _, b := range last {
			if a.Seed == b.Seed {
				pairs = append(pairs, [2]Run{a, b})
				break
			}
		}
	}
	return pairs
}

func (c *Comparison) judge() analysis.Verdict {
	seeds := func(s Subject) []int64 {
		var all []int64
		for _, r := range s.Runs {
			all = append(all, r.Seed)
		}
		return all
	}
	for _, s := range c.Subjects {
		own := seeds(s)
		if !slices.Equal(own, seeds(c.Subjects[0])) || len(slices.Compact(own)) != len(s.Runs) {
			return analysis.Invalid
		}
		for _, r := range s.Runs {
			if r.Verdict != analysis.Pass && r.Verdict != analysis.Fail {
				return analysis.Invalid
			}
		}
	}
	if d := c.Difference; d.Real != nil && *d.Real && d.Estimate > 0 {
		return analysis.Fail
	}
	return analysis.Pass
}

// WriteJSON writes compare.json.
func WriteJSON(w io.Writer, c *Comparison) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(c); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

// Schema is the JSON Schema (2020-12) of compare.json.
//
//go:embed schema.json
var Schema []byte

package reports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// ComparisonVersion is the version of compare.json.
const ComparisonVersion = 1

// leastPairs is how many pairs of runs it takes before anything is claimed: with four runs on each side a permutation
// test can just reach 5 % (2 of 70 arrangements).
const leastPairs = 4

// Comparison is compare.json: subjects in the same scenario, with the same seeds.
type Comparison struct {
	SchemaVersion int               `json:"schemaVersion"`
	Scenario      string            `json:"scenario"`
	Command       string            `json:"command,omitempty"` // repeats the comparison
	Subjects      []ComparedSubject `json:"subjects"`
	Difference    Difference        `json:"difference"` // of dropped, the last subject against the first
	// Verdict is invalid when a run is, or when a seed has not one run of each subject; fail when the last subject
	// really drops more connections than the first; else pass, which below four pairs claims nothing.
	Verdict Verdict `json:"verdict"`
}

// ComparedSubject is one subject with its runs, in order of their seeds.
type ComparedSubject struct {
	Subject string        `json:"subject"`
	Runs    []ComparedRun `json:"runs"`
}

// ComparedRun is one run of a comparison.
type ComparedRun struct {
	Seed       int64   `json:"seed"`
	Verdict    Verdict `json:"verdict"`
	Attempts   int     `json:"attempts"`
	Dropped    int     `json:"dropped"`
	Delayed    int     `json:"delayed"`
	WorstGapMs float64 `json:"worstGapMs"` // upper bound of the longest outage; 0 without one
	Report     string  `json:"report"`     // path of its report.json, relative to compare.json
	// HistorySha256 is what whoever repeats the run with the same program must get, when its clock was virtual.
	HistorySha256 string `json:"historySha256,omitempty"`
	// Failures are the failed attempts by what they have in common; see Comparison.Changes.
	Failures []ComparedFailures `json:"failures,omitempty"`
}

// Difference is what the last subject has more than the first in the median pair of runs.
type Difference struct {
	Metric   string  `json:"metric"` // dropped (connections) or worstGapMs
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"` // 95 % confidence interval
	High     float64 `json:"high"`
	Real     *bool   `json:"real"` // null below four pairs
}

// ComparedRunOf makes the entry of a run from its report; path is where report.json lies, relative to compare.json, and
// history the hash of its history.
func ComparedRunOf(r *Report, path, history string) ComparedRun {
	return ComparedRun{Seed: r.Run.Seed, Verdict: r.Verdict, Attempts: r.Totals.Attempts, Dropped: r.Totals.Dropped,
		Delayed: r.Totals.Delayed, WorstGapMs: r.WorstGapMs(), Report: path, HistorySha256: history, Failures: failuresOf(r)}
}

// InvalidRun is the entry of a run that has no report, because it came to no good end.
func InvalidRun(seed int64, path, history string) ComparedRun {
	return ComparedRun{Seed: seed, Verdict: Invalid, Report: path, HistorySha256: history}
}

// Compare pairs the runs of the subjects by their seeds. At least two subjects are needed, each with a run; the order
// of the subjects is kept. It is deterministic: the resampling has a fixed seed.
func Compare(scenario string, subjects []ComparedSubject) (*Comparison, error) {
	if len(subjects) < 2 {
		return nil, fmt.Errorf("comparing %s: %s given, two are needed", scenario, plural(len(subjects), "subject"))
	}
	c := &Comparison{SchemaVersion: ComparisonVersion, Scenario: scenario}
	for _, s := range subjects {
		if len(s.Runs) == 0 {
			return nil, fmt.Errorf("comparing %s: %s has no run", scenario, s.Subject)
		}
		s.Runs = slices.SortedStableFunc(slices.Values(s.Runs), func(a, b ComparedRun) int { return cmp.Compare(a.Seed, b.Seed) })
		c.Subjects = append(c.Subjects, s)
	}
	c.Difference = c.Differences()[0]
	c.Verdict = c.judge()
	return c, nil
}

// Differences are the differences in both metrics of the last subject against the first, dropped first. Without a pair
// they are zero.
func (c *Comparison) Differences() []Difference { return c.differencesOf(len(c.Subjects) - 1) }

// differencesOf are those of a subject, by its number, against the first.
func (c *Comparison) differencesOf(subject int) []Difference {
	pairs := c.pairs(subject)
	all := []Difference{{Metric: "dropped"}, {Metric: "worstGapMs"}}
	for i, value := range [...]func(ComparedRun) float64{
		func(r ComparedRun) float64 { return float64(r.Dropped) },
		func(r ComparedRun) float64 { return r.WorstGapMs },
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

// pairs are the runs of the first subject and of another, by its number, with the same seed, in order of the seeds.
func (c *Comparison) pairs(subject int) [][2]ComparedRun {
	first, last := c.Subjects[0].Runs, c.Subjects[subject].Runs
	var pairs [][2]ComparedRun
	for _, a := range first {
		for _, b := range last {
			if a.Seed == b.Seed {
				pairs = append(pairs, [2]ComparedRun{a, b})
				break
			}
		}
	}
	return pairs
}

func (c *Comparison) judge() Verdict {
	seeds := func(s ComparedSubject) []int64 {
		var all []int64
		for _, r := range s.Runs {
			all = append(all, r.Seed)
		}
		return all
	}
	for _, s := range c.Subjects {
		own := seeds(s)
		if !slices.Equal(own, seeds(c.Subjects[0])) || len(slices.Compact(own)) != len(s.Runs) {
			return Invalid
		}
		for _, r := range s.Runs {
			if r.Verdict != Pass && r.Verdict != Fail {
				return Invalid
			}
		}
	}
	if d := c.Difference; d.Real != nil && *d.Real && d.Estimate > 0 {
		return Fail
	}
	return Pass
}

// WriteComparisonJSON writes compare.json.
func WriteComparisonJSON(w io.Writer, c *Comparison) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(c); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

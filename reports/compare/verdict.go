package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
)

// Relation is what a subject is, compared with the reference.
type Relation string

// The relations. Unclear means that the runs do not tell.
const (
	Better  Relation = "better"
	Same    Relation = "same"
	Worse   Relation = "worse"
	Unclear Relation = "inconclusive"
)

// Difference compares a subject with the reference.
type Difference struct {
	Subject string `json:"subject"`
	// Verdict is worse when a measure is, or when there is a new class or cause. Otherwise it is inconclusive, better or same when a measure is.
	Verdict  Relation  `json:"verdict"`
	Pairs    int       `json:"pairs"` // of valid runs with the same seed
	Measures []Measure `json:"measures"`
	// NewClasses and NewCauses are those of failed attempts that no valid run of the reference has. They are empty when the reference lost
	// nothing: all losses are new then.
	NewClasses []string `json:"newClasses,omitempty"`
	NewCauses  []string `json:"newCauses,omitempty"`
}

// Measure compares one number of the runs. The median and its interval are of the subject's value minus the reference's.
type Measure struct {
	Measure  string   `json:"measure"` // dropped, delayed, worstGapMs or outageSeconds
	Verdict  Relation `json:"verdict"`
	More     int      `json:"more"` // pairs in which the subject has more
	Less     int      `json:"less"`
	Equal    int      `json:"equal"`
	Estimate float64  `json:"estimate"`
	Low      float64  `json:"low"` // 95 % interval
	High     float64  `json:"high"`
}

// leastPairs is the smallest number of pairs for the permutation test. With four runs on each side its smallest share is 2.9 % (2 of
// 70 arrangements); with three it is 10 %.
const leastPairs = 4

// sameWithin is the share of the median, and of the mean, up to which differences in both directions count as the same.
const sameWithin = 0.1

// measures are what is compared, in the order of the reports.
var measures = [...]struct {
	name, title, more, less string
	of                      func(Run) float64
	known                   func(Run) bool
	text                    func(float64) string   // of a difference
	slack                   func(Run, Run) float64 // up to which two values cannot be told apart
}{
	{"dropped", "dropped", "dropped more", "dropped less", func(r Run) float64 { return float64(r.Dropped) }, always, plainText, none},
	{"delayed", "delayed", "delayed more", "delayed less", func(r Run) float64 { return float64(r.Delayed) }, always, plainText, none},
	{"worstGapMs", "worst gap", "had a longer one", "had a shorter one", func(r Run) float64 { return r.WorstGapMs }, always, signedMs,
		func(a, b Run) float64 { return max(a.DetectionFloorMs, b.DetectionFloorMs) }},
	{"outageSeconds", "seconds of outage", "had more", "had fewer", func(r Run) float64 { return *r.OutageSeconds },
		func(r Run) bool { return r.OutageSeconds != nil }, func(s float64) string { return signedMs(s * 1e3) },
		func(a, b Run) float64 { return max(a.DetectionFloorMs, b.DetectionFloorMs) / 1e3 }},
}

func always(Run) bool       { return true }
func none(Run, Run) float64 { return 0 }
func plainText(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return units.Thousands(int(v))
	}
	return fmt.Sprintf("%.1f", v)
}

func signedMs(v float64) string {
	if v < 0 {
		return "-" + units.MsText(-v)
	}
	return units.MsText(v)
}

// difference compares a subject with the reference, both by their numbers.
func (c *Comparison) difference(reference, subject int) Difference {
	pairs := c.pairs(reference, subject)
	d := Difference{Subject: c.Subjects[subject].Subject, Pairs: len(pairs), Measures: []Measure{}}
	for i, m := range measures {
		if !slices.ContainsFunc(pairs, func(p [2]Run) bool { return !m.known(p[0]) || !m.known(p[1]) }) {
			d.Measures = append(d.Measures, measured(i, pairs))
		}
	}
	d.NewClasses = c.newWords(reference, subject, func(f analysis.Failures) string { return f.Class })
	d.NewCauses = c.newWords(reference, subject, func(f analysis.Failures) string { return f.Event })
	is := func(r Relation) bool {
		return slices.ContainsFunc(d.Measures, func(m Measure) bool { return m.Verdict == r })
	}
	switch {
	case is(Worse), len(d.NewClasses)+len(d.NewCauses) > 0:
		d.Verdict = Worse
	case is(Unclear):
		d.Verdict = Unclear
	case is(Better):
		d.Verdict = Better
	default:
		d.Verdict = Same
	}
	return d
}

// pairs returns the pairs of valid runs of the reference and of a subject, in order of the seeds. A seed with two runs of one of
// them has no pair.
func (c *Comparison) pairs(reference, subject int) (pairs [][2]Run) {
	own, others := c.Subjects[reference].bySeed(), c.Subjects[subject].bySeed()
	for _, a := range c.Subjects[reference].Runs {
		same := others[a.Seed]
		if len(own[a.Seed]) == 1 && len(same) == 1 && a.valid() && same[0].valid() {
			pairs = append(pairs, [2]Run{a, same[0]})
		}
	}
	return pairs
}

func (s Subject) bySeed() map[int64][]Run {
	runs := map[int64][]Run{}
	for _, r := range s.Runs {
		runs[r.Seed] = append(runs[r.Seed], r)
	}
	return runs
}

// measured compares one measure, by its number, in pairs of the reference and a subject.
func measured(number int, pairs [][2]Run) Measure {
	of := measures[number]
	m := Measure{Measure: of.name}
	var reference, subject, differences []float64
	zeroToLoss := true // where the subject has more, the reference has nothing
	for _, p := range pairs {
		a, b := of.of(p[0]), of.of(p[1])
		if math.Abs(a-b) <= of.slack(p[0], p[1]) && a > 0 && b > 0 {
			b = a
		}
		switch {
		case b > a:
			m.More, zeroToLoss = m.More+1, zeroToLoss && a == 0
		case b < a:
			m.Less++
		default:
			m.Equal++
		}
		reference, subject, differences = append(reference, a), append(subject, b), append(differences, b-a)
	}
	if len(pairs) > 0 {
		m.Estimate = median(differences)
		m.Low, m.High = bootstrapMedian(differences)
	}
	m.Verdict = m.judge(reference, subject, zeroToLoss)
	return m
}

// judge is the rule of docs/compare.md: pairs that all point the same way decide; otherwise a test decides, if there are enough pairs.
func (m Measure) judge(reference, subject []float64, zeroToLoss bool) Relation {
	switch {
	case len(reference) == 0:
		return Unclear
	case m.More+m.Less == 0:
		return Same
	case m.More == 0:
		return Better
	case m.Less == 0 && (m.More > 1 || zeroToLoss):
		return Worse
	case m.Less == 0 || len(reference) < leastPairs:
		return Unclear
	}
	isReal := permutationShare(reference, subject) <= 0.05
	margin := sameWithin * min(median(reference), median(subject))
	apart := math.Abs(mean(reference) - mean(subject))
	switch {
	case isReal && m.Low > 0:
		return Worse
	case isReal && m.High < 0:
		return Better
	case m.Low <= 0 && m.High >= 0 && m.Low >= -margin && m.High <= margin && apart <= sameWithin*min(mean(reference), mean(subject)):
		return Same // the median alone does not see a few runs with much more loss
	}
	return Unclear
}

// newWords lists the classes or causes of the subject's failures that the reference has in none of its valid runs. Unexplained
// failures have no cause.
func (c *Comparison) newWords(reference, subject int, word func(analysis.Failures) string) (found []string) {
	known := c.Subjects[reference].words(word)
	if len(c.Subjects[reference].words(func(f analysis.Failures) string { return f.Class })) == 0 {
		return nil
	}
	for _, w := range c.Subjects[subject].words(word) {
		if w != "" && !slices.Contains(known, w) {
			found = append(found, w)
		}
	}
	return found
}

// words lists the classes or causes of the failures in the valid runs, sorted.
func (s Subject) words(word func(analysis.Failures) string) (words []string) {
	for _, r := range s.Runs {
		for _, f := range r.Failures {
			if r.valid() && f.Connections > 0 {
				words = append(words, word(f))
			}
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// because has the parts of a difference that are worse or inconclusive, as text.
func (d Difference) because(r Relation) (parts []string) {
	if d.Pairs == 0 && r == Unclear {
		return []string{noPair}
	}
	for _, m := range d.Measures {
		if m.Verdict == r {
			text := m.title() + ": " + m.PairsText()
			if few := m.tooFew(); few != "" {
				text += " (" + few + ")"
			}
			parts = append(parts, text)
		}
	}
	if r == Worse {
		parts = append(parts, d.newTexts()...)
	}
	return parts
}

func (d Difference) newTexts() (parts []string) {
	for _, part := range [...]struct {
		what  string
		words []string
	}{{"new class", d.NewClasses}, {"new cause", d.NewCauses}} {
		for _, word := range part.words {
			parts = append(parts, part.what+" "+word)
		}
	}
	return parts
}

// of is the number of a measure in measures. Files have known names only: see Read.
func (m Measure) of() int {
	for i := range measures {
		if measures[i].name == m.Measure {
			return i
		}
	}
	return 0
}

func (m Measure) title() string { return measures[m.of()].title }

const noPair = "no pair of valid runs"

// PairsText counts the pairs, such as "3 of 4 runs dropped more, 1 equal".
func (m Measure) PairsText() string {
	of, all := measures[m.of()], m.More+m.Less+m.Equal
	if all == 0 {
		return noPair
	}
	var parts []string
	for _, part := range [...]struct {
		n    int
		text string
	}{{m.More, of.more}, {m.Less, of.less}, {m.Equal, "equal"}} {
		switch {
		case part.n == 0:
		case len(parts) == 0:
			parts = append(parts, fmt.Sprintf("%d of %s %s", part.n, units.Plural(all, "run"), part.text))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.text))
		}
	}
	return strings.Join(parts, ", ")
}

// texts returns the median difference and its interval as text; empty without a pair.
func (m Measure) texts() (estimate, interval string) {
	if m.More+m.Less+m.Equal == 0 {
		return "", ""
	}
	text, sign := measures[m.of()].text, ""
	if m.Estimate > 0 {
		sign = "+"
	}
	if m.More+m.Less+m.Equal < leastPairs {
		return sign + text(m.Estimate), fmt.Sprintf("none: needs %d pairs", leastPairs)
	}
	return sign + text(m.Estimate), text(m.Low) + " to " + text(m.High)
}

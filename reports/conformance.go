package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/analysis"
)

// conformance says what an implementation of the Service proxy can do, as runs have shown it.
type conformance struct {
	APIVersion     string             `yaml:"apiVersion"`
	Kind           string             `yaml:"kind"`
	Date           string             `yaml:"date,omitempty"` // of the latest run
	Implementation implementation     `yaml:"implementation"`
	Profiles       []conformedProfile `yaml:"profiles"`
}

type implementation struct {
	Name    string `yaml:"name"`
	Version string `yaml:"version,omitempty"`
}

// conformedProfile is a mode of the implementation.
type conformedProfile struct {
	Name        string         `yaml:"name"`
	Result      string         `yaml:"result"` // success, failure, or partial when nothing failed but not all is known
	Statistics  map[string]int `yaml:"statistics"`
	Supported   []string       `yaml:"supportedFeatures"`
	Failed      []string       `yaml:"failedFeatures"`
	Undecided   []string       `yaml:"undecidedFeatures"` // no run that can be trusted
	Runs        []conformedRun `yaml:"runs"`
	byFeature   map[string][]analysis.Verdict
	inTheirTurn []string
}

type conformedRun struct {
	Feature       string           `yaml:"feature"`
	Seed          int64            `yaml:"seed"`
	Verdict       analysis.Verdict `yaml:"verdict"`
	Said          string           `yaml:"said"`
	FloorMs       *float64         `yaml:"detectionFloorMs"`
	Kernel        string           `yaml:"kernel"`
	Clock         string           `yaml:"clock"`
	InputsSha256  string           `yaml:"inputsSha256"`
	HistorySha256 string           `yaml:"historySha256"`
	Reproduce     string           `yaml:"reproduce"`
}

// WriteConformance writes a YAML document for each implementation among the runs: for each of its modes the features that
// it supports, those that failed, and for each run what it said and the command that repeats it. A feature is a
// scenario with the parameters that the command set; it is supported when all of its runs passed.
func WriteConformance(w io.Writer, runs []*RunFolder) error {
	var all []*conformance
	for _, f := range runs {
		s := f.Report.Subject
		of := implementation{s.Name, s.Version}
		i := slices.IndexFunc(all, func(c *conformance) bool { return c.Implementation == of })
		if i < 0 {
			i = len(all)
			all = append(all, &conformance{APIVersion: "hitless/v1", Kind: "ConformanceReport", Implementation: of})
		}
		all[i].add(f)
	}
	slices.SortStableFunc(all, func(x, y *conformance) int {
		return cmp.Or(strings.Compare(x.Implementation.Name, y.Implementation.Name), strings.Compare(x.Implementation.Version, y.Implementation.Version))
	})
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	for _, c := range all {
		for i := range c.Profiles {
			c.Profiles[i].conclude()
		}
		if err := encoder.Encode(c); err != nil {
			return fmt.Errorf("writing the conformance report: %w", err)
		}
	}
	if err := encoder.Close(); err != nil {
		return fmt.Errorf("writing the conformance report: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (c *conformance) add(f *RunFolder) {
	r := f.Report
	if !f.Started.IsZero() {
		c.Date = max(c.Date, f.Started.UTC().Format(time.RFC3339))
	}
	name := cmp.Or(r.Subject.Mode, "default")
	i := slices.IndexFunc(c.Profiles, func(p conformedProfile) bool { return p.Name == name })
	if i < 0 {
		i = len(c.Profiles)
		c.Profiles = append(c.Profiles, conformedProfile{Name: name, byFeature: map[string][]analysis.Verdict{}, Supported: []string{}, Failed: []string{}, Undecided: []string{}})
	}
	p := &c.Profiles[i]
	feature := analysis.TitleOf(r.Run.Scenario, f.Origin.Command)
	if p.byFeature[feature] == nil {
		p.inTheirTurn = append(p.inTheirTurn, feature)
	}
	p.byFeature[feature] = append(p.byFeature[feature], r.Verdict)
	p.Runs = append(p.Runs, conformedRun{Feature: feature, Seed: r.Run.Seed, Verdict: r.Verdict, Said: r.Headline(),
		FloorMs: r.DetectionFloor.Ms, Kernel: r.Run.Kernel.String(), Clock: r.Run.Clock,
		InputsSha256: r.Run.InputsSha256, HistorySha256: f.Origin.HistorySha256, Reproduce: f.Origin.Command})
}

// conclude sums the features up.
func (p *conformedProfile) conclude() {
	p.Statistics = map[string]int{}
	for _, v := range [...]analysis.Verdict{analysis.Pass, analysis.Fail, analysis.Invalid, analysis.Skipped} {
		p.Statistics[string(v)] = 0
	}
	for _, feature := range p.inTheirTurn {
		verdicts := p.byFeature[feature]
		for _, v := range verdicts {
			p.Statistics[string(v)]++
		}
		switch {
		case slices.Contains(verdicts, analysis.Fail):
			p.Failed = append(p.Failed, feature)
		case slices.ContainsFunc(verdicts, func(v analysis.Verdict) bool { return v != analysis.Pass }):
			p.Undecided = append(p.Undecided, feature)
		default:
			p.Supported = append(p.Supported, feature)
		}
	}
	switch {
	case len(p.Failed) > 0:
		p.Result = "failure"
	case len(p.Undecided) > 0:
		p.Result = "partial"
	default:
		p.Result = "success"
	}
}

package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// State is the result of a spec.
type State string

// The states. Invalid is a run whose measurement cannot be trusted; NotRun is a spec that an interrupt or an early end prevented.
const (
	Passed  State = "passed"
	Failed  State = "failed"
	Invalid State = "invalid"
	Skipped State = "skipped"
	NotRun  State = "not run"
)

// states lists the states in the order of reports.
var states = []State{Passed, Failed, Invalid, Skipped, NotRun}

// ReportVersion is the version of the schema of conformance.yaml.
const ReportVersion = 1

// Report is conformance.yaml: what the suite found of one subject.
type Report struct {
	APIVersion     string         `yaml:"apiVersion" json:"apiVersion"`
	Kind           string         `yaml:"kind" json:"kind"`
	SchemaVersion  int            `yaml:"schemaVersion" json:"schemaVersion"`
	Implementation Implementation `yaml:"implementation" json:"implementation"`
	Site           Site           `yaml:"site" json:"site"`
	Program        string         `yaml:"program" json:"program"` // SHA-256 of hitless; empty if unknown
	Command        string         `yaml:"command" json:"command"`
	Seed           int64          `yaml:"seed" json:"seed"`
	Selected       Selected       `yaml:"selected" json:"selected"`
	// Ended says why the suite ended before all of its specs; empty if it did not.
	Ended    string    `yaml:"ended,omitempty" json:"ended,omitempty"`
	Profiles []Profile `yaml:"profiles" json:"profiles"`
	Features Features  `yaml:"features" json:"features"`
	Specs    []Result  `yaml:"specs" json:"specs"` // in the order of the catalog
	// Made is when and with what the runs were made, by the name of their folder. Only reports that are kept have it.
	Made []RunMade `yaml:"made,omitempty" json:"made,omitempty"`
	// Bugs has those of the museum that were searched for in the subject; empty if none were.
	Bugs []Bug `yaml:"museum,omitempty" json:"museum,omitempty"`
}

// RunMade is when and with what a run was made.
type RunMade struct {
	Run         string `yaml:"run" json:"run"` // folder, as Result.Run
	record.Made `yaml:",inline"`
}

// Implementation is the subject.
type Implementation struct {
	Subject string `yaml:"subject" json:"subject"` // as it was named in the call; empty for a live cluster
	Name    string `yaml:"name" json:"name"`
	Version string `yaml:"version" json:"version"`
	Mode    string `yaml:"mode" json:"mode"`
}

// Site is where the runs were.
type Site struct {
	Kernel       string `yaml:"kernel" json:"kernel"`
	Clock        string `yaml:"clock" json:"clock"`
	ControlPlane string `yaml:"controlPlane" json:"controlPlane"`
}

// Selected says which specs of the catalog the report has.
type Selected struct {
	Labels  string   `yaml:"labels" json:"labels"`
	Focus   []string `yaml:"focus" json:"focus"`
	Skip    []string `yaml:"skip" json:"skip"`
	Shard   string   `yaml:"shard" json:"shard"`     // I/N; empty for the whole
	Specs   int      `yaml:"specs" json:"specs"`     // in all shards
	Catalog int      `yaml:"catalog" json:"catalog"` // all specs of hitless
}

// Profile sums up the specs of a level.
type Profile struct {
	Name       Level          `yaml:"name" json:"name"`
	Result     string         `yaml:"result" json:"result"` // success, failure, partial (nothing failed, and not all is known), or not selected
	Statistics map[string]int `yaml:"statistics" json:"statistics"`
	Failed     []string       `yaml:"failed" json:"failed"`
	Invalid    []string       `yaml:"invalid" json:"invalid"`
	Skipped    []string       `yaml:"skipped" json:"skipped"`
	NotRun     []string       `yaml:"notRun" json:"notRun"`
}

// Specs is how many specs of the level the report has.
func (p Profile) Specs() (n int) {
	for _, count := range p.Statistics {
		n += count
	}
	return n
}

// Features sorts the features of the specs: a feature is supported if all of its specs passed, and unsupported if one failed.
type Features struct {
	Supported   []string `yaml:"supported" json:"supported"`
	Unsupported []string `yaml:"unsupported" json:"unsupported"`
	Undecided   []string `yaml:"undecided" json:"undecided"`
}

// Result is the result of a spec.
type Result struct {
	Name    string   `yaml:"name" json:"name"`
	Promise string   `yaml:"promise" json:"promise"`
	Source  string   `yaml:"source" json:"source"`
	Labels  []string `yaml:"labels" json:"labels"`
	State   State    `yaml:"state" json:"state"`
	Reasons []string `yaml:"reasons" json:"reasons"`
	Run     string   `yaml:"run" json:"run"` // folder of the run; empty if it did not run
	// Failures are those of the lanes that the spec judges, also excused ones. It is nil for checks of routing and costs, for runs without a
	// record, and in reports of older versions.
	Failures      *[]analysis.Failures `yaml:"failures,omitempty" json:"failures,omitempty"`
	HistorySha256 string               `yaml:"historySha256" json:"historySha256"`
	Repeat        string               `yaml:"repeat" json:"repeat"` // the command that repeats the run
}

// HasVerdict reports whether the run of the spec gets a verdict, and with it a seal. Checks of routing and costs only have a record.
func (r Result) HasVerdict() bool {
	return !slices.Contains(r.Labels, string(Routing)) && !slices.Contains(r.Labels, string(Cost))
}

// newReport makes the report from that of Ginkgo.
func (s *Suite) newReport(r types.Report) *Report {
	c := s.config
	report := &Report{APIVersion: "hitless/v1", Kind: "ConformanceSuiteReport", SchemaVersion: ReportVersion, Program: c.Sum, Command: c.Command, Seed: c.Options.Seed,
		Implementation: Implementation{Subject: c.Options.Subject}, Bugs: c.Bugs,
		Selected: Selected{Labels: c.Selection.Labels, Focus: c.Selection.Focus, Skip: c.Selection.Skip, Shard: c.Selection.Shard.String(),
			Specs: s.whole, Catalog: len(Catalog())}}
	if c.DryRun {
		report.Ended = "dry run"
	} else if len(r.SpecialSuiteFailureReasons) > 0 {
		report.Ended = strings.Join(r.SpecialSuiteFailureReasons, "; ")
	} else if s.err != nil {
		report.Ended = s.err.Error()
	}
	byText := map[string]types.SpecReport{}
	for _, spec := range r.SpecReports {
		byText[spec.LeafNodeText] = spec
	}
	for _, p := range s.planned {
		result, e := resultOf(p, byText[p.Text()])
		if result.State == NotRun && s.interrupted(r) {
			e = s.judgeEnded(p, &result)
		}
		if e != nil {
			report.describe(e)
		}
		report.Specs = append(report.Specs, result)
	}
	report.conclude()
	return report
}

// resultOf is the result of a spec, with its evidence if there is some.
func resultOf(p Planned, spec types.SpecReport) (Result, *Evidence) {
	result := Result{Name: p.Name, Promise: p.Promise, Source: p.Source, Labels: p.Labels(), State: NotRun, Reasons: []string{}}
	for _, e := range spec.ReportEntries {
		var found entry
		text, is := e.Value.GetRawValue().(string)
		if e.Name != entryName || !is || json.Unmarshal([]byte(text), &found) != nil {
			continue
		}
		result.judged(found.Outcome, found.Evidence)
		return result, found.Evidence
	}
	switch {
	case p.Skip != "":
		result.State, result.Reasons = Skipped, []string{p.Skip}
	case spec.State == types.SpecStateFailed || spec.State == types.SpecStatePanicked || spec.State == types.SpecStateTimedout:
		result.State, result.Reasons = Invalid, []string{spec.Failure.Message}
	}
	return result, nil
}

func (r *Result) judged(o outcome, e *Evidence) {
	r.State, r.Run, r.HistorySha256, r.Repeat = o.State, e.Folder, e.HistorySha256, e.Command
	r.Failures = o.Failures
	r.Reasons = append(r.Reasons, o.Reasons...)
}

// interrupted reports whether an interrupt or the deadline ended the suite.
func (s *Suite) interrupted(r types.Report) bool {
	return len(r.SpecialSuiteFailureReasons) > 0 && s.err == nil && !s.config.DryRun
}

// judgeEnded judges a spec that an interrupt prevented, if its run has ended: Ginkgo orders specs by their text, and not by their runs.
func (s *Suite) judgeEnded(p Planned, result *Result) *Evidence {
	e, err := readEvidence(s.config.evidenceFile(p.Run), s.config.session)
	if e == nil || err != nil {
		return nil
	}
	o, err := p.judge(e, s.config.Out)
	if err != nil {
		o = outcome{State: Invalid, Reasons: []string{err.Error()}}
	}
	result.judged(o, e)
	return e
}

// describe adds what a run says about the subject and the site.
func (r *Report) describe(e *Evidence) {
	if e.Subject == (record.Subject{}) {
		return
	}
	r.Implementation.Name, r.Implementation.Version, r.Implementation.Mode = e.Subject.Name, e.Subject.Version, e.Subject.Mode
	r.Site = Site{e.Kernel.String(), e.Clock, e.ControlPlane}
	r.Program = cmp.Or(e.Program, r.Program)
}

// conclude sums up the specs.
func (r *Report) conclude() {
	r.Profiles = nil
	for _, level := range []Level{Core, Extended} {
		r.Profiles = append(r.Profiles, r.profile(level))
	}
	r.Features = r.sortFeatures()
	for _, list := range []*[]string{&r.Selected.Focus, &r.Selected.Skip} {
		if *list == nil {
			*list = []string{}
		}
	}
}

func (r *Report) profile(level Level) Profile {
	p := Profile{Name: level, Statistics: map[string]int{}, Failed: []string{}, Invalid: []string{}, Skipped: []string{}, NotRun: []string{}}
	for _, state := range states {
		p.Statistics[string(state)] = 0
	}
	lists := map[State]*[]string{Failed: &p.Failed, Invalid: &p.Invalid, Skipped: &p.Skipped, NotRun: &p.NotRun}
	for _, s := range r.Specs {
		if !slices.Contains(s.Labels, string(level)) {
			continue
		}
		p.Statistics[string(s.State)]++
		if list := lists[s.State]; list != nil {
			*list = append(*list, s.Name)
		}
	}
	switch {
	case p.Specs() == 0:
		p.Result = "not selected"
	case len(p.Failed) > 0:
		p.Result = "failure"
	case p.Statistics[string(Passed)] == 0 || len(p.Invalid)+len(p.Skipped)+len(p.NotRun) > 0:
		p.Result = "partial"
	default:
		p.Result = "success"
	}
	return p
}

func (r *Report) sortFeatures() Features {
	byFeature := map[string][]State{}
	for _, s := range r.Specs {
		for _, label := range s.Labels {
			if features[label] != "" {
				byFeature[label] = append(byFeature[label], s.State)
			}
		}
	}
	f := Features{Supported: []string{}, Unsupported: []string{}, Undecided: []string{}}
	for _, name := range slices.Sorted(maps.Keys(byFeature)) {
		switch of := byFeature[name]; {
		case slices.Contains(of, Failed):
			f.Unsupported = append(f.Unsupported, name)
		case slices.ContainsFunc(of, func(s State) bool { return s != Passed }):
			f.Undecided = append(f.Undecided, name)
		default:
			f.Supported = append(f.Supported, name)
		}
	}
	return f
}

// Count is the number of specs in a state.
func (r *Report) Count(state State) (n int) {
	for _, s := range r.Specs {
		if s.State == state {
			n++
		}
	}
	return n
}

// ExitCode is 0 if no spec is red and one passed, 1 if one failed, 2 if all were skipped, and 3 if one is invalid or was not run.
func (r *Report) ExitCode() int {
	switch {
	case r.Count(Failed) > 0:
		return 1
	case r.Count(Invalid)+r.Count(NotRun) > 0:
		return 3
	case r.Count(Passed) == 0 && len(r.Specs) > 0:
		return 2
	}
	return 0
}

// Summary is one sentence with the numbers.
func (r *Report) Summary() string {
	var parts []string
	for _, state := range states {
		parts = append(parts, fmt.Sprintf("%d %s", r.Count(state), state))
	}
	text := fmt.Sprintf("%s: %s of %s", r.Title(), strings.Join(parts, ", "), units.Plural(len(r.Specs), "spec"))
	if r.Ended != "" {
		text += " (" + r.Ended + ")"
	}
	return text
}

var _ ginkgo.GinkgoTestingT = (*failure)(nil)

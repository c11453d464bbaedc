package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios/museum"
)

// BugResult tells whether a subject has one bug of the museum, and which run showed it.
type BugResult struct {
	ID      string            `json:"id"`
	Title   string            `json:"title"`
	Subject string            `json:"subject"`
	Set     map[string]string `json:"set,omitempty"` // parameters of the call besides those of the entry
	Seed    int64             `json:"seed"`
	// TriggerSha256 is that of the entry that was run; empty where a record was judged, whose trigger may have been another one.
	TriggerSha256 string        `json:"triggerSha256,omitempty"`
	Answer        museum.Answer `json:"answer"`
	Reasons       []string      `json:"reasons"`
	// The rest is empty where nothing was run.
	Verdict  string `json:"verdict,omitempty"` // of the run: it can fail without the bug
	Attempts int    `json:"attempts,omitempty"`
	Dropped  int    `json:"dropped,omitempty"`
	Delayed  *int   `json:"delayed,omitempty"` // nil in older files
	// Failures are the failed attempts of the run by lane, class and cause; older files do not have them.
	Failures      []analysis.Failures `json:"failures,omitempty"`
	HistorySha256 string              `json:"historySha256,omitempty"`
	ProgramSha256 string              `json:"programSha256,omitempty"` // of hitless
	Kernel        *record.Kernel      `json:"kernel,omitempty"`
	ControlPlane  string              `json:"controlPlane,omitempty"`
	// Made is when and with what the run was made. Only answers that are kept have it.
	Made   *record.Made `json:"made,omitempty"`
	Folder string       `json:"-"`
}

// Count returns how many results have an answer.
func Count(results []BugResult, answer museum.Answer) (n int) {
	for _, b := range results {
		if b.Answer == answer {
			n++
		}
	}
	return n
}

// Museum runs an entry's trigger and searches the record for the entry's signature. An invalid run gives CannotTell, and a subject in a
// mode that cannot have the bug, or one that cannot run the trigger, DoesNotApply, without a run.
func Museum(ctx context.Context, o Options, e museum.Entry) (BugResult, error) {
	given := o.besides(e)
	if err := o.UseEntry(e); err != nil {
		return BugResult{}, err
	}
	b := BugResult{ID: e.ID, Title: e.Title, Subject: o.Subject, Set: given, Seed: o.Seed, TriggerSha256: e.TriggerSha256(), Folder: o.Out}
	mode, err := modeOf(ctx, o.Subject)
	if err != nil {
		return b, UsageError{Reason: err}
	}
	if why := e.Applies(cmp.Or(o.Subject, subject.Bundled.Name), mode); why != "" {
		b.Answer, b.Reasons = museum.DoesNotApply, []string{why}
		return b, nil
	}
	result, err := Run(ctx, o)
	var invalid *InvalidError
	switch {
	case SubjectLacks(err):
		b.Answer, b.Reasons = museum.DoesNotApply, []string{err.Error()}
		return b, nil
	case errors.As(err, &invalid):
		b.Answer, b.Reasons = museum.CannotTell, []string{err.Error()}
		return b, nil
	case err != nil:
		return b, err
	}
	b.Folder = result.Dir
	err = b.judge(e)
	return b, err
}

// JudgeBug searches the record of a run that has ended for an entry's signature. The folder is that of the run.
func JudgeBug(dir string, e museum.Entry) (BugResult, error) {
	b := BugResult{ID: e.ID, Title: e.Title, Folder: dir}
	err := b.judge(e)
	return b, err
}

// judge adds what the record in the result's folder shows.
func (b *BugResult) judge(e museum.Entry) error {
	h, err := record.OpenHistory(b.Folder)
	if err != nil {
		return err
	}
	r, err := museum.Open(h)
	if err != nil {
		return err
	}
	f := e.Judge(r)
	b.Answer, b.Reasons, b.Seed = f.Answer, f.Reasons, r.Report.Run.Seed
	told := compare.RunOf(r.Report, "", "")
	b.Verdict, b.Attempts, b.Dropped, b.Delayed, b.Failures = string(told.Verdict), told.Attempts, told.Dropped, &told.Delayed, told.Failures
	b.ProgramSha256, b.Kernel, b.ControlPlane = r.Report.Run.ProgramSha256, &r.Report.Run.Kernel, r.Report.Run.ControlPlane
	if b.Subject == "" {
		s := r.Report.Subject
		b.Subject = subject.Spec{Name: s.Name, Version: s.Version, Mode: s.Mode, Flags: s.Flags}.String()
	}
	o, err := h.Origin()
	b.HistorySha256 = o.HistorySha256
	return err
}

// modeOf returns the mode of a subject; empty for a described program whose mode is none of kube-proxy's, which can have every bug.
func modeOf(ctx context.Context, name string) (string, error) {
	if name == "" {
		return subject.Bundled.Mode, nil
	}
	spec, err := subject.Read(ctx, name)
	if err != nil || !slices.Contains(subject.Modes(), spec.Mode) {
		return "", err
	}
	return spec.Mode, nil
}

// UseEntry sets the scenario and parameters of an entry, which the call cannot change. Parameters of the entry's bad specimen are defaults.
func (o *Options) UseEntry(e museum.Entry) error {
	set := e.SetOf(o.Subject)
	fixed := e.Needs()
	for _, key := range sortedKeys(o.Set) {
		if need, fixed := fixed[key]; fixed && need != o.Set[key] {
			return usagef("--set %s=%s: %s needs %s=%s", key, o.Set[key], e.ID, key, need)
		}
		set[key] = o.Set[key]
	}
	if need := e.NodesNeeded(); need > 0 {
		if o.Nodes != 0 && o.Nodes != need {
			return usagef("--nodes %d: %s needs %d", o.Nodes, e.ID, need)
		}
		o.Nodes = need
	}
	if e.Timeline != nil {
		o.Timeline, o.entry = &Timeline{e.Timeline, e.ID + ".timeline"}, e.ID
	} else {
		maps.Copy(set, e.Set)
	}
	o.Scenario, o.Set = e.Scenario, set
	if o.Out == "" {
		o.Out = filepath.Join("out", "museum-"+e.ID)
	}
	return nil
}

// besides returns the parameters of the call that the entry does not fix.
func (o *Options) besides(e museum.Entry) map[string]string {
	besides := maps.Clone(o.Set)
	maps.DeleteFunc(besides, func(key, _ string) bool { _, fixed := e.Set[key]; return fixed })
	return besides
}

// MuseumFile is the file with the results of several bugs.
const MuseumFile = "museum.json"

// ReadBugs reads a museum.json. That of a shard may have no result.
func ReadBugs(ctx context.Context, file string) (found []BugResult, err error) {
	data, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the bugs: %w; `hitless museum run --all` writes %s", err, MuseumFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		if errors.As(err, new(*json.UnmarshalTypeError)) {
			err = errors.New("it is not the list that `hitless museum run` writes")
		}
		return nil, fmt.Errorf("reading the bugs in %s: %w; give the %s of `hitless museum run --all`", file, err, MuseumFile)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("reading the bugs in %s: it has text after its list; give the %s of `hitless museum run --all`", file, MuseumFile)
	}
	return found, nil
}

// Answers are the answers of results.
func Answers(found []BugResult) (answers []museum.Answer) {
	for _, b := range found {
		answers = append(answers, b.Answer)
	}
	return answers
}

// WriteBugs writes museum.json and junit.xml into a folder. A kill leaves the old files.
func WriteBugs(dir string, found []BugResult) error {
	cases := make([]reports.JUnitCase, len(found))
	for i, b := range found {
		cases[i] = reports.JUnitCase{Class: "hitless.museum", Name: b.ID + ": " + b.Title, Outcome: junitOutcomes[b.Answer], Reasons: b.Reasons}
	}
	var results, junit bytes.Buffer
	encoder := json.NewEncoder(&results)
	encoder.SetIndent("", "  ")
	if found == nil {
		found = []BugResult{} // a list, also where it is empty
	}
	if err := errors.Join(encoder.Encode(found), reports.WriteJUnitCases(&junit, "hitless museum", cases)); err != nil {
		return err
	}
	return cache.WriteFiles(dir, []cache.File{{Name: MuseumFile, Data: results.Bytes()}, {Name: reports.JUnitFile, Data: junit.Bytes()}})
}

// junitOutcomes are the outcomes of test cases by answer. A bug that is seen fails.
var junitOutcomes = map[museum.Answer]reports.JUnitOutcome{museum.Seen: reports.JUnitFailed, museum.CannotTell: reports.JUnitError, museum.DoesNotApply: reports.JUnitSkipped}

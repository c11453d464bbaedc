package merge

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/suites/conformance"
)

// suite is a conformance suite in two shards. The first has a disruption, the second the checks of routing and of costs.
type suite struct {
	t       *testing.T
	dirs    []string
	reports []*conformance.Report
	key     ed25519.PrivateKey
}

var (
	ownProgram   = strings.Repeat("1", 64)
	otherProgram = strings.Repeat("2", 64)
)

func newSuite(t *testing.T, key ed25519.PrivateKey) *suite {
	t.Helper()
	s := &suite{t: t, dirs: []string{t.TempDir(), t.TempDir()}, key: key}
	for i, names := range [][]string{{"quiet new"}, {"ipv4 cluster IP", "cost of a change, time"}} {
		r := &conformance.Report{Kind: "ConformanceSuiteReport", SchemaVersion: conformance.ReportVersion, Program: ownProgram, Command: "hitless conformance", Seed: 1,
			Implementation: conformance.Implementation{Subject: "bundled", Name: "bundled"}, Selected: conformance.Selected{Shard: []string{"1/2", "2/2"}[i], Specs: 3}}
		for _, name := range names {
			r.Specs = append(r.Specs, s.spec(i, name))
		}
		s.reports = append(s.reports, r)
	}
	return s
}

// spec is a spec of the catalog that passed, with its run.
func (s *suite) spec(shard int, name string) conformance.Result {
	s.t.Helper()
	all := conformance.Catalog()
	spec := all[slices.IndexFunc(all, func(s conformance.Spec) bool { return s.Name == name })]
	r := conformance.Result{Name: name, Labels: spec.Labels(), State: conformance.Passed, Reasons: []string{}, Run: conformance.RunsDir + "/" + spec.Run.Name}
	r.HistorySha256 = s.makeRun(shard, r, record.Sealed{Verdict: "pass"}, 1, ownProgram)
	return r
}

// makeRun makes the record of a spec's run in place of another one, with a seal if it has a verdict.
func (s *suite) makeRun(shard int, r conformance.Result, end record.Sealed, seed int64, program string) string {
	s.t.Helper()
	dir := filepath.Join(s.dirs[shard], r.Run)
	lab := recordtest.SmallRun()
	lab.Run.Seed, lab.Run.ProgramSha256 = seed, program
	from := filepath.Dir(lab.Write(s.t).Dir())
	s.must(os.RemoveAll(dir))
	s.must(os.CopyFS(dir, os.DirFS(from)))
	data, seal, err := record.SealHistory(dir, end, s.key)
	s.must(err)
	if r.HasVerdict() {
		s.must(os.WriteFile(filepath.Join(dir, record.SealFile), data, 0o600))
	} else {
		s.must(os.RemoveAll(filepath.Join(dir, record.SealFile)))
	}
	return seal.HistorySha256
}

func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// merge writes the reports and merges the shards.
func (s *suite) merge(key ed25519.PublicKey) (out string, err error) {
	s.t.Helper()
	for i, r := range s.reports {
		s.must(conformance.Write(s.dirs[i], r, s.key, nil))
	}
	out = filepath.Join(s.t.TempDir(), "whole")
	_, err = Folders(s.t.Context(), s.dirs, out, key)
	return out, err
}

// Each run of a merged suite is the one that the report of its shard names, whole, and made by its program.
func TestRunsOfOtherSuitesAreNotMerged(t *testing.T) {
	pass := record.Sealed{Verdict: "pass"}
	tests := map[string]struct {
		change func(s *suite, disruption, routing, cost *conformance.Result)
		want   string // in the error; empty if the shards can be merged
	}{
		"as made":                 {func(_ *suite, _, _, _ *conformance.Result) {}, ""},
		"another disruption":      {func(s *suite, d, _, _ *conformance.Result) { s.makeRun(0, *d, pass, 2, ownProgram) }, "INVALID"},
		"other checks of routing": {func(s *suite, _, r, _ *conformance.Result) { s.makeRun(1, *r, pass, 2, ownProgram) }, "INVALID"},
		"other costs":             {func(s *suite, _, _, c *conformance.Result) { s.makeRun(1, *c, pass, 2, ownProgram) }, "INVALID"},
		"no seal": {func(s *suite, d, _, _ *conformance.Result) {
			s.must(os.Remove(filepath.Join(s.dirs[0], d.Run, record.SealFile)))
		}, "INVALID"},
		"no run":                   {func(s *suite, d, _, _ *conformance.Result) { s.must(os.RemoveAll(filepath.Join(s.dirs[0], d.Run))) }, "quiet"},
		"no checks of routing":     {func(s *suite, _, r, _ *conformance.Result) { s.must(os.RemoveAll(filepath.Join(s.dirs[1], r.Run))) }, "routing-ipv4"},
		"another program":          {func(s *suite, d, _, _ *conformance.Result) { d.HistorySha256 = s.makeRun(0, *d, pass, 1, otherProgram) }, "another program"},
		"costs of another program": {func(s *suite, _, _, c *conformance.Result) { c.HistorySha256 = s.makeRun(1, *c, pass, 1, otherProgram) }, "another program"},
		"judged by no record":      {func(_ *suite, d, _, _ *conformance.Result) { d.HistorySha256 = "" }, "quiet new"},
		"another folder":           {func(_ *suite, d, _, _ *conformance.Result) { d.Run = "runs/../other" }, "other"},
		"a run in two shards": {func(s *suite, d, r, _ *conformance.Result) {
			r.Run, r.HistorySha256 = d.Run, s.makeRun(1, *d, pass, 1, ownProgram)
		}, "quiet"},
		"passed, and ended early": {func(s *suite, d, _, _ *conformance.Result) {
			d.HistorySha256 = s.makeRun(0, *d, record.Sealed{Verdict: "invalid", Early: "x"}, 1, ownProgram)
		}, "INVALID"},
		"invalid, and ended early": {func(s *suite, d, _, _ *conformance.Result) {
			d.State, d.HistorySha256 = conformance.Invalid, s.makeRun(0, *d, record.Sealed{Verdict: "invalid", Early: "x"}, 1, ownProgram)
		}, ""},
		"invalid without a record": {func(s *suite, d, _, _ *conformance.Result) {
			d.State, d.HistorySha256 = conformance.Invalid, ""
			s.must(os.RemoveAll(filepath.Join(s.dirs[0], d.Run)))
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSuite(t, nil)
			tt.change(s, &s.reports[0].Specs[0], &s.reports[1].Specs[0], &s.reports[1].Specs[1])
			out, err := s.merge(nil)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("the shards were merged")
			}
			if _, has := os.Stat(out); has == nil || tt.want == "INVALID" && !record.IsDamaged(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, and the folder of the whole: %v", err, has)
			}
		})
	}
}

// A merged suite has the runs that the reports name, and none that an earlier call left in a folder.
func TestOnlyTheRunsOfTheReportsAreMerged(t *testing.T) {
	s := newSuite(t, nil)
	s.must(os.CopyFS(filepath.Join(s.dirs[1], conformance.RunsDir, "of-an-older-call"), os.DirFS(filepath.Join(s.dirs[0], s.reports[0].Specs[0].Run))))
	out, err := s.merge(nil)
	s.must(err)
	entries, err := os.ReadDir(filepath.Join(out, conformance.RunsDir))
	s.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"cost", "quiet", "routing-ipv4"}; !slices.Equal(names, want) {
		t.Errorf("the whole has the runs %q, want %q", names, want)
	}
}

// The page of the whole leads to the copied runs.
func TestThePageOfAMergedSuiteHasTheRuns(t *testing.T) {
	s := newSuite(t, nil)
	out, err := s.merge(nil)
	s.must(err)
	links := testfiles.Links(t, filepath.Join(out, conformance.PageFile))
	if want := []string{"runs/quiet/history/events.ndjson", "runs/routing-ipv4/history/events.ndjson", "runs/cost/history/events.ndjson"}; !slices.Equal(slices.Sorted(slices.Values(links)), slices.Sorted(slices.Values(want))) {
		t.Errorf("links to %q, want %q", links, want)
	}
}

// The whole has Ginkgo's files too, for programs that read JUnit.
func TestAMergedSuiteHasGinkgosFiles(t *testing.T) {
	s := newSuite(t, nil)
	out, err := s.merge(nil)
	s.must(err)
	for _, name := range []string{"junit.xml", "ginkgo.json"} {
		if data, err := os.ReadFile(filepath.Join(out, name)); err != nil || !bytes.Contains(data, []byte("quiet new")) {
			t.Errorf("%s does not name the specs: %v", name, err)
		}
	}
}

// A spec that an interrupt prevented is an error for programs that read JUnit, as the exit code 3 says; a skipped one is skipped.
func TestASpecThatWasNotRunIsAnErrorInJUnit(t *testing.T) {
	for state, want := range map[conformance.State]string{conformance.NotRun: `errors="1"`, conformance.Skipped: `errors="0"`} {
		s := newSuite(t, nil)
		spec := &s.reports[0].Specs[0]
		spec.State, spec.Run, spec.HistorySha256 = state, "", ""
		s.reports[0].Ended = "Interrupted by User"
		out, err := s.merge(nil)
		s.must(err)
		data, err := os.ReadFile(filepath.Join(out, "junit.xml"))
		if s.must(err); !bytes.Contains(data, []byte(want)) {
			t.Errorf("a spec that is %s:\n%s", state, data)
		}
	}
}

// With a key, the seal of each run must be signed too. A run without a verdict has its hash in the signed report.
func TestMergedSuitesAreSigned(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	s := newSuite(t, key)
	if _, err := s.merge(key.Public().(ed25519.PublicKey)); err != nil {
		t.Error(err)
	}
	s = newSuite(t, nil) // no seal is signed
	s.key = key
	if _, err := s.merge(key.Public().(ed25519.PublicKey)); !record.IsDamaged(err) {
		t.Errorf("runs without a signature: %v", err)
	}
}

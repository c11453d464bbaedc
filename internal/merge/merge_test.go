package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports/compare"
)

// call is a call whose two runs are in a shard each.
type call struct {
	t     *testing.T
	kind  string
	sums  []string // the program of each run
	names []string // of the runs
	dirs  []string // of the shards
}

func newCall(t *testing.T, kind string) *call {
	t.Helper()
	c := &call{t: t, kind: kind, names: []string{"one-seed-1", "two-seed-1"}, dirs: []string{t.TempDir(), t.TempDir()}}
	for i, dir := range c.dirs {
		if err := shard.Write(t.Context(), dir, kind, "hitless "+kind, shard.Shard{Part: i + 1, Of: 2}, c.names); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := shard.ReadAll(t.Context(), c.dirs)
	if err != nil {
		t.Fatal(err)
	}
	c.sums = []string{parts[0].ProgramSha256, parts[1].ProgramSha256}
	return c
}

// home is the folder of a run.
func (c *call) home(i int) string { return filepath.Join(c.dirs[i], c.names[i]) }

// write makes the run of each shard, and the results that name it, which edit may change.
func (c *call) write(edit func(i int, r *result)) {
	c.t.Helper()
	for i, dir := range c.dirs {
		r := result{name: c.names[i], history: makeRun(c.t, c.home(i), int64(i+1), c.sums[i])}
		if edit != nil {
			edit(i, &r)
		}
		if err := r.write(dir, c.kind, int64(i+1)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// makeRun makes a sealed run that a program is said to have made, and returns the hash of its history.
func makeRun(t *testing.T, dir string, seed int64, program string) string {
	t.Helper()
	l := recordtest.SmallRun()
	l.Run.Seed, l.Run.ProgramSha256 = seed, program
	h := l.Write(t)
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(h.Dir()))); err != nil {
		t.Fatal(err)
	}
	data, seal, err := record.SealHistory(dir, record.Sealed{Verdict: "fail", Attempts: smallAttempts}, nil)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, record.SealFile), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return seal.HistorySha256
}

// smallAttempts are the attempts of the run that makeRun makes.
var smallAttempts = len(recordtest.SmallRun().Attempts)

// result is what the results of a shard have of its run.
type result struct {
	name, history string
	dropped       int
	delayed       int
}

func (r result) write(dir, kind string, seed int64) error {
	switch kind {
	case shard.Museum:
		return run.WriteBugs(dir, []run.BugResult{{ID: r.name, Answer: "seen", Verdict: "fail", Attempts: smallAttempts, Dropped: r.dropped, Delayed: &r.delayed, HistorySha256: r.history}})
	case shard.Comparison:
		subjects := []compare.Subject{{Subject: "one"}, {Subject: "two"}}
		subjects[seed-1].Runs = []compare.Run{{Seed: 1, Verdict: analysis.Fail, Attempts: smallAttempts, Dropped: r.dropped, Delayed: r.delayed, Report: r.name + "/report.json", HistorySha256: r.history}}
		return compare.WritePart(dir, compare.NewPart("rollout", "hitless "+kind, subjects, compare.Options{}))
	}
	return nil // a soak has nothing but its runs
}

// Each run of a merge is the one that the results of its shard name, sealed and made by the program of the shards.
func TestRunsOfOtherCallsAreNotMerged(t *testing.T) {
	const other = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	unnamed := func(i int, r *result) { r.name = fmt.Sprint("another-", i) }
	tests := map[string]struct {
		make func(c *call)
		want string   // in the error; empty if the shards can be merged
		not  []string // kinds without it
	}{
		"as made":        {make: func(c *call) { c.write(nil) }},
		"another record": {func(c *call) { c.write(func(_ int, r *result) { r.history = other }) }, "INVALID", []string{shard.Soak}},
		"other numbers":  {func(c *call) { c.write(func(_ int, r *result) { r.dropped = 3 }) }, "INVALID", []string{shard.Soak}},
		"other delays":   {func(c *call) { c.write(func(_ int, r *result) { r.delayed = 3 }) }, "INVALID", []string{shard.Soak}},
		"no record":      {func(c *call) { c.write(func(_ int, r *result) { r.history = "" }) }, "name no record", []string{shard.Soak}},
		"another run": {func(c *call) {
			c.write(nil)
			if err := os.RemoveAll(c.home(0)); err != nil {
				c.t.Fatal(err)
			}
			makeRun(c.t, c.home(0), 9, c.sums[0])
		}, "INVALID", []string{shard.Soak}},
		"no seal": {func(c *call) {
			c.write(nil)
			if err := os.Remove(filepath.Join(c.home(1), record.SealFile)); err != nil {
				c.t.Fatal(err)
			}
		}, "INVALID", nil},
		"another program": {func(c *call) { c.sums[1] = other; c.write(nil) }, "another program", nil},
		"not in results":  {func(c *call) { c.write(unnamed) }, "has the result of one-seed-1", []string{shard.Soak}},
	}
	for name, tt := range tests {
		for _, kind := range []string{shard.Comparison, shard.Museum, shard.Soak} {
			if slices.Contains(tt.not, kind) {
				continue
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				c := newCall(t, kind)
				tt.make(c)
				out := filepath.Join(t.TempDir(), "whole")
				_, err := Folders(t.Context(), c.dirs, out, nil)
				if tt.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if err == nil {
					t.Fatal("the shards were merged")
				}
				if _, has := os.Stat(out); tt.want == "INVALID" && !record.IsDamaged(err) || tt.want != "INVALID" && !strings.Contains(err.Error(), tt.want) || has == nil {
					t.Errorf("%v, and the folder of the whole: %v", err, has)
				}
			})
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/results"
)

// Merged shards have each job once, with its results. A job that is missing, was made twice, or is of other sources is an error, and copies nothing.
func TestMergedShards(t *testing.T) {
	tree := func(sources string, jobs ...string) string {
		top := t.TempDir()
		if err := os.MkdirAll(filepath.Join(top, resultsDir, "suites"), 0o755); err != nil {
			t.Fatal(err)
		}
		var all results.Jobs
		for _, name := range jobs {
			all.Put(results.Job{Name: name, Sources: sources})
			if suite, is := strings.CutPrefix(name, "suite-"); is {
				if err := os.WriteFile(filepath.Join(top, resultsDir, "suites", suite+".json"), []byte(suite), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := all.Write(filepath.Join(top, jobsFile)); err != nil {
			t.Fatal(err)
		}
		return top
	}
	names := []string{"suite-a", "suite-b", "netns"}
	one, other := tree("1", "suite-a", "netns"), tree("1", "suite-b")
	for name, c := range map[string]struct {
		trees []string
		wants string // in the error
	}{
		"two shards":    {[]string{one, other}, ""},
		"one machine":   {[]string{tree("1", names...)}, ""},
		"missing":       {[]string{one}, "suite-b is missing"},
		"twice":         {[]string{one, other, tree("1", "netns")}, "netns was made twice"},
		"other sources": {[]string{one, tree("2", "suite-b")}, "2 programs"},
		"another job":   {[]string{one, other, tree("1", "suite-c")}, "no job suite-c"},
		"no shard":      {[]string{one, other, tree("1")}, "has no job"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			err := merge(t.Context(), names, c.trees)
			if (err != nil) != (c.wants != "") || err != nil && !strings.Contains(err.Error(), c.wants) {
				t.Fatalf("%v, want %q", err, c.wants)
			}
			made, readErr := results.ReadJobs(t.Context(), jobsFile)
			if readErr != nil {
				t.Fatal(readErr)
			}
			files, _ := filepath.Glob(filepath.Join(resultsDir, "suites", "*"))
			if err != nil && len(made.Jobs)+len(files) > 0 {
				t.Errorf("a refused merge wrote %d jobs, and the files %v", len(made.Jobs), files)
			}
			if err == nil && (len(made.Jobs) != len(names) || made.Of != len(names) || len(files) != 2) {
				t.Errorf("%d of %d jobs, and the files %v", len(made.Jobs), made.Of, files)
			}
			for _, file := range files {
				if text, err := os.ReadFile(file); err != nil || string(text)+".json" != filepath.Base(file) {
					t.Errorf("%s has %q, error %v", file, text, err)
				}
			}
		})
	}
}

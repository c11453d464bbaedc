package site

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// results are the files and folders that a run writes into its folder.
var results = []string{"history", "logs", "report.json", "report.html", "junit.xml", "summary.md", OpenMetricsFile, MinimizedFile, "host.json"}

// Files that package site adds to the folder of a run.
const (
	OpenMetricsFile = "openmetrics.txt"    // samples with the times of the host's clock
	MinimizedFile   = "minimized.timeline" // the shortest timeline that fails as the run did
)

// makeFolder makes the folder of a run and checks that it can be written. It removes nothing, since the run can still fail before
// its start. A folder that holds such names but no host.json is of another program, and a UsageError.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Usagef("making the folder for the results: %w; give another with --out", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "host.json")); err != nil {
		for _, name := range results {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				return Usagef("%s holds a %s that is not of a run (there is no host.json), and a run would overwrite it; "+
					"give another folder with --out", dir, name)
			}
		}
	}
	if err := cache.CheckWritable(dir); err != nil {
		return Usagef("writing to %s: %w; give another folder with --out", dir, err)
	}
	return nil
}

// clearFolder removes the results of an earlier run. host.json marks the folder as one of a run and is removed last.
func clearFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Usagef("clearing the old results in %s: %w; give another folder with --out", dir, err)
	}
	var old []string
	for _, e := range entries {
		stopped, _ := filepath.Match("at-*s", e.Name()) // the pattern is valid
		if stopped || strings.HasPrefix(e.Name(), checkpointPrefix) || cache.IsUnfinished(e.Name()) {
			old = append(old, e.Name())
		}
	}
	for _, name := range append(old, results...) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return Usagef("clearing the old results in %s: %w; give another folder with --out", dir, err)
		}
	}
	return nil
}

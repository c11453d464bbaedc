package run

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// results are what a run writes into its folder.
var results = []string{"history", "logs", "report.json", "report.html", "junit.xml", "summary.md", openMetricsFile, MinimizedFile, "host.json"}

// MinimizedFile is the shortest timeline that fails as the run did, in the run's folder.
const MinimizedFile = "minimized.timeline"

// makeOut makes the run's folder and proves that it can be written, before anything is booted. It takes nothing away:
// what can still go wrong before the boot must not cost the results of an earlier run. A folder that holds such names
// but no run is somebody else's.
func makeOut(o *Options) error {
	if o.Out == "" {
		o.Out = filepath.Join("out", o.Scenario)
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return usagef("making the folder for the results: %w; give another with --out", err)
	}
	if _, err := os.Lstat(filepath.Join(o.Out, "host.json")); err != nil {
		for _, name := range results {
			if _, err := os.Lstat(filepath.Join(o.Out, name)); err == nil {
				return usagef("%s holds a %s that is not of a run (there is no host.json), and a run would overwrite it; "+
					"give another folder with --out", o.Out, name)
			}
		}
	}
	if err := cache.CheckWritable(o.Out); err != nil {
		return usagef("writing to %s: %w; give another folder with --out", o.Out, err)
	}
	return nil
}

// clearOut empties the folder of an earlier run. Its host.json, by which the next run knows it, goes last.
func clearOut(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return usagef("clearing the old results in %s: %w; give another folder with --out", dir, err)
	}
	var old []string
	for _, e := range entries {
		looked, _ := filepath.Match("at-*s", e.Name()) // the pattern is none that fails
		if looked || strings.HasPrefix(e.Name(), checkpointPrefix) || cache.IsUnfinished(e.Name()) {
			old = append(old, e.Name())
		}
	}
	for _, name := range append(old, results...) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return usagef("clearing the old results in %s: %w; give another folder with --out", dir, err)
		}
	}
	return nil
}

// diskMB is what a run needs: for the guest's memory region and its history, and for the packed files in the cache.
const diskMB = 2048

// checkDisk refuses a run for which a file system is too full.
func checkDisk(o Options) error {
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return usagef("making the cache: %w; set HITLESS_CACHE to a folder", err)
	}
	for _, place := range []struct{ dir, change string }{
		{o.Out, "--out"}, {os.TempDir(), "TMPDIR"}, {o.Cache, "HITLESS_CACHE"},
	} {
		free, err := cache.FreeBytes(place.dir)
		if err != nil {
			continue // the run fails there with an error that is more precise
		}
		if free >>= 20; free < diskMB {
			return usagef("%s has %d MB free, a run needs %d MB; free some, or name another place with %s", place.dir, free, diskMB, place.change)
		}
	}
	return nil
}

package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A wrong call must delete neither the results of an earlier run nor foreign files.
func TestResultsFolder(t *testing.T) {
	write := func(t *testing.T, dir, name string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("of another program is left alone", func(t *testing.T) {
		dir := t.TempDir()
		file := write(t, dir, "logs/mine.log")
		err := makeFolder(dir)
		if !isUsage(err) || !strings.Contains(err.Error(), "logs") {
			t.Errorf("a folder with foreign logs: %v, want a usage error that names them", err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("a foreign file was deleted: %v", err)
		}
	})
	t.Run("of an earlier run is cleared only for a run that boots", func(t *testing.T) {
		dir := t.TempDir()
		report, other := write(t, dir, "report.json"), write(t, dir, "notes.txt")
		write(t, dir, "host.json")
		leftovers := []string{report, write(t, dir, "minimized.timeline"), write(t, dir, ".checkpoint-17/history/events.ndjson"), write(t, dir, "at-35s/notes")}
		if err := makeFolder(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(report); err != nil {
			t.Errorf("the earlier report was deleted before the run: %v", err)
		}
		if err := clearFolder(dir); err != nil {
			t.Fatal(err)
		}
		for _, left := range leftovers {
			if _, err := os.Stat(left); err == nil {
				t.Errorf("the earlier %s still exists and looks like the new run's", left)
			}
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("a file that is not a result was deleted: %v", err)
		}
	})
	t.Run("below a file is a usage error", func(t *testing.T) {
		if err := makeFolder(filepath.Join(write(t, t.TempDir(), "file"), "out")); !isUsage(err) {
			t.Errorf("got %v, want a usage error", err)
		}
	})
}

package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
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
		err := (&Call{Out: dir}).claim("hitless run")
		if !isUsage(err) || !strings.Contains(err.Error(), "logs") {
			t.Errorf("a folder with foreign logs: %v, want a usage error that names them", err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("a foreign file was deleted: %v", err)
		}
	})
	t.Run("of an earlier run stays until there is a report", func(t *testing.T) {
		dir := t.TempDir()
		report, other := write(t, dir, "report.json"), write(t, dir, "notes.txt")
		write(t, dir, "host.json")
		old := []string{report, write(t, dir, "minimized.timeline"), write(t, dir, "at-35s/notes"), write(t, dir, "logs/old.log")}
		left := write(t, dir, "unfinished/logs/of-a-killed-run.log")
		c := &Call{Out: dir}
		if err := c.claim("hitless run"); err != nil {
			t.Fatal(err)
		}
		defer c.release()
		for _, file := range append(old, left) {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s was deleted before the run: %v", file, err)
			}
		}
		if err := c.clear(); err != nil {
			t.Fatal(err)
		}
		write(t, c.dir(), "host.json")
		write(t, c.dir(), "logs/new.log")
		for _, early := range []bool{true, false} {
			r := &Result{Dir: c.dir(), Report: &analysis.Report{}}
			if early {
				r.Report = nil
			}
			if _, err := c.settle(r, endOf(early)); early && r.Dir != c.dir() || !early && (err != nil || r.Dir != dir) {
				t.Errorf("ended early %v: %+v, %v", early, r, err)
			}
			for _, file := range old {
				if _, err := os.Stat(file); (err == nil) != early {
					t.Errorf("ended early %v: the earlier %s: %v", early, file, err)
				}
			}
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("a file that is not a result was deleted: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "logs/new.log")); err != nil {
			t.Error(err)
		}
		for _, hidden := range []string{".finished", ".install", "unfinished"} {
			if _, err := os.Stat(filepath.Join(dir, hidden)); err == nil {
				t.Errorf("%s is left", hidden)
			}
		}
	})
	t.Run("below a file is a usage error", func(t *testing.T) {
		if err := (&Call{Out: filepath.Join(write(t, t.TempDir(), "file"), "out")}).claim("hitless run"); !isUsage(err) {
			t.Errorf("got %v, want a usage error", err)
		}
	})
}

func endOf(early bool) error {
	if early {
		return &InvalidError{Reason: "the deadline is over"}
	}
	return nil
}

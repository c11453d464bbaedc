package reports

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

// claimed is a folder with a run that has these files, while another one has written its own.
func claimed(t *testing.T, old, unfinished []string) (string, *Claim) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range old {
		testfiles.Write(t, dir, name, []byte("old"))
	}
	c, err := ClaimRun(dir, "hitless run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // some tests close it
	if _, err := c.Begin(); err != nil {
		t.Fatal(err)
	}
	for _, name := range unfinished {
		testfiles.Write(t, c.Work(), name, []byte("new"))
	}
	return dir, c
}

// Files about several runs do not replace those of a run. A folder that another call uses is named as such first.
func TestTheFolderOfARunTakesNoOtherResults(t *testing.T) {
	dir, c := claimed(t, []string{HostFile, JUnitFile}, nil)
	for name, lock := range map[string]func(string, string) (*Claim, error){"LockMany": LockMany, "ClaimComparison": ClaimComparison} {
		if _, err := lock(dir, "hitless compare"); !errors.As(err, new(*BusyError)) {
			t.Errorf("%s of a folder in use: %v", name, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for name, lock := range map[string]func(string, string) (*Claim, error){"LockMany": LockMany, "ClaimComparison": ClaimComparison} {
		if _, err := lock(dir, "hitless compare"); err == nil || errors.As(err, new(*BusyError)) {
			t.Errorf("%s of the folder of a run: %v", name, err)
		}
		free, err := lock(t.TempDir(), "hitless compare")
		if err != nil || free.Close() != nil {
			t.Errorf("%s of an empty folder: %v", name, err)
		}
	}
	if again, err := Lock(dir, "hitless run"); err != nil || again.Close() != nil {
		t.Errorf("the folder is not free after it was refused: %v", err)
	}
}

// A run that was killed at any instant of storing its results leaves one complete run: here, or after the next command.
func TestResultsAreCompletedAfterAKill(t *testing.T) {
	old := []string{HostFile, ReportFile, record.SealFile, MinimizedFile}
	fresh := []string{HostFile, ReportFile, record.SealFile}
	for killedAfter := range 12 {
		dir, c := claimed(t, old, fresh)
		finished, install := filepath.Join(dir, finishedDir), filepath.Join(dir, installDir)
		steps := []func() error{func() error { return os.Rename(c.Work(), finished) },
			func() error { return os.Mkdir(filepath.Join(finished, replacedDir), 0o755) }}
		for _, name := range old {
			steps = append(steps, func() error {
				return os.Rename(filepath.Join(dir, name), filepath.Join(finished, replacedDir, name))
			})
		}
		steps = append(steps, func() error { return os.Rename(finished, install) })
		for _, name := range fresh {
			steps = append(steps, func() error { return os.Rename(filepath.Join(install, name), filepath.Join(dir, name)) })
		}
		for _, step := range steps[:min(killedAfter, len(steps))] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(c.Close(), Recover(dir)); err != nil {
			t.Fatal(err)
		}
		want := "new"
		if killedAfter == 0 {
			want = "old"
		}
		for _, name := range fresh {
			if got := string(testfiles.Read(t, dir, name)[0]); got != want {
				t.Errorf("killed after %d steps, %s is %s, want %s", killedAfter, name, got, want)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, MinimizedFile)); (err == nil) != (want == "old") {
			t.Errorf("killed after %d steps, %s: %v", killedAfter, MinimizedFile, err)
		}
		for _, left := range []string{finished, install} {
			if _, err := os.Stat(left); err == nil {
				t.Errorf("killed after %d steps, %s is left", killedAfter, left)
			}
		}
	}
}

// A folder is in use until its claim ends, and what an unfinished run left is removed at the next beginning, not before.
func TestAFolderHasOneRun(t *testing.T) {
	dir, c := claimed(t, []string{HostFile}, []string{ReportFile})
	if _, err := ClaimRun(dir, "another"); !errors.As(err, new(*BusyError)) {
		t.Errorf("a second run: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := ClaimRun(dir, "another")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := os.Stat(filepath.Join(again.Work(), ReportFile)); err != nil {
		t.Errorf("removed too early: %v", err)
	}
	if removed, err := again.Begin(); err != nil || !removed {
		t.Errorf("removed %v, %v", removed, err)
	}
}

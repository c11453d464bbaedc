package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestDir(t *testing.T) {
	t.Setenv("HITLESS_CACHE", "/var/cache/hitless")
	if got, err := Dir(); err != nil || got != "/var/cache/hitless" {
		t.Errorf("Dir() = %q, %v", got, err)
	}
	t.Setenv("HITLESS_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/home/user/.cache")
	if got, err := Dir(); err != nil || got != "/home/user/.cache/hitless" {
		t.Errorf("Dir() = %q, %v", got, err)
	}
}

// Prune keeps the most recently used entries, young ones, held ones and files that it does not know.
func TestPrune(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	limit := Limit{Keep: 8, MinAge: 10 * time.Minute}
	write := func(name string, age time.Duration) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var want []string
	for i := range limit.Keep + 3 { // three more than are kept, and young
		want = append(want, write(fmt.Sprintf("lab-young-%02d", i), time.Duration(i)*time.Second))
	}
	held, tried, marked := write("lab-held", 24*time.Hour), write("lab-tried", 24*time.Hour), write("lab-marked", 24*time.Hour)
	write("lab-old", limit.MinAge)
	write(UnfinishedPrefix+"of-a-killed-process", time.Second)
	f, err := Hold(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := TryHold(tried)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := MarkUsed(marked); err != nil {
		t.Fatal(err)
	}
	unfinished, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unfinished.Discard()
	want = append(want, held, tried, marked, unfinished.Name(), write("other", 24*time.Hour))
	if err := Prune(dir, "lab-", limit, now); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if e.Name() != stampsDir {
			got = append(got, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

// A process may mark an entry after another one's Prune has chosen it: the entry stays. One that is gone cannot be marked.
func TestPruneKeepsWhatIsMarkedMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lab-old")
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Chtimes(file, old, old)); err != nil {
		t.Fatal(err)
	}
	chosen := time.Now().Add(-10 * time.Minute)
	if err := MarkUsed(file); err != nil {
		t.Fatal(err)
	}
	if err := removeUnheld(file, chosen); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the marked entry: %v", err)
	}
	if err := removeUnheld(file, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := MarkUsed(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("marking a removed entry: %v", err)
	}
}

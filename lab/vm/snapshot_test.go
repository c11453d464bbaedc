package vm

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// saveFile writes a snapshot with that content, key and age, and returns its path.
func saveFile(t *testing.T, dir, stem, content string, age time.Duration) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "it"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, snapshotName(f, stem))
	used := time.Now().Add(-age)
	if err := os.Rename(f.Name(), name); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, used, used); err != nil {
		t.Fatal(err)
	}
	return name
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

func TestASnapshotIsFoundByItsKeyAndVerified(t *testing.T) {
	dir := t.TempDir()
	name := saveFile(t, dir, "lab-one", "memory", time.Hour)
	for at, key := range map[pause]string{atSettled: "two", atBooted: "one"} {
		if s := openSnapshot(dir, at, key); s != nil {
			t.Errorf("the snapshot of another key or pause was opened: %s", s.Name())
		}
	}
	s := openSnapshot(dir, atSettled, "one")
	if s == nil {
		t.Fatal("the snapshot was not opened")
	}
	if err := s.verify(); err != nil {
		t.Errorf("an undamaged snapshot: %v", err)
	}
	// Computing the checksum must not move the offset of the descriptor that QEMU reads from.
	if at, err := s.Seek(0, io.SeekCurrent); err != nil || at != 0 {
		t.Errorf("QEMU would begin to read at %d (%v)", at, err)
	}
	s.Close()
	if err := os.WriteFile(name, []byte("memorY"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSnapshot(dir, atSettled, "one")
	if s == nil {
		t.Fatal("the damaged snapshot was not opened")
	}
	defer s.Close()
	if err := s.verify(); err == nil {
		t.Error("a damaged snapshot passed verification")
	}
}

// Those of one kind do not make room for those of the other.
func TestMostRecentlyUsedSnapshotsAreKept(t *testing.T) {
	dir := t.TempDir()
	stays := map[string]bool{}
	for _, kind := range snapshotKinds {
		for i := range kind.keep + 3 {
			name := saveFile(t, dir, fmt.Sprint(kind.prefix, "key", i), "memory", time.Duration(i)*time.Hour)
			stays[name] = i <= kind.keep
			if i == kind.keep { // one of the three surplus snapshots
				held, err := cache.TryHold(name)
				if err != nil {
					t.Fatal(err)
				}
				defer held.Close()
			}
		}
	}
	if err := pruneSnapshots(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range stays {
		if exists(name) != want {
			t.Errorf("%s exists: %t, want %t", name, !want, want)
		}
	}
}

// Guests that boot at the same time are saved once. A monitor would be asked for the second one.
func TestASavedGuestIsNotSavedAgain(t *testing.T) {
	dir := t.TempDir()
	name := saveFile(t, dir, "booted-one", "memory", time.Hour)
	if err := saveSnapshot(nil, dir, atBooted, "one"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || !exists(name) {
		t.Errorf("%v, %v", entries, err)
	}
}

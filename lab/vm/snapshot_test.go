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
func saveFile(t *testing.T, dir, key, content string, age time.Duration) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "it"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, snapshotName(f, key))
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
	name := saveFile(t, dir, "one", "memory", time.Hour)
	if s := openSnapshot(dir, "two"); s != nil {
		t.Errorf("the snapshot of another key was opened: %s", s.Name())
	}
	s := openSnapshot(dir, "one")
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
	s = openSnapshot(dir, "one")
	if s == nil {
		t.Fatal("the damaged snapshot was not opened")
	}
	defer s.Close()
	if err := s.verify(); err == nil {
		t.Error("a damaged snapshot passed verification")
	}
}

func TestMostRecentlyUsedSnapshotsAreKept(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i := range maxSnapshots + 3 {
		names = append(names, saveFile(t, dir, fmt.Sprint("key", i), "memory", time.Duration(i)*time.Hour))
	}
	held, err := cache.TryHold(names[maxSnapshots]) // one of the three surplus snapshots
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := pruneSnapshots(dir); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if want := i <= maxSnapshots; exists(name) != want {
			t.Errorf("snapshot %d of %d (newest first) exists: %t, want %t", i, len(names), !want, want)
		}
	}
}

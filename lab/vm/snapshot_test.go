package vm

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// keep writes a file of that content as the snapshot of a key, and returns its name.
func keep(t *testing.T, dir, key, content string, age time.Duration) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "it"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, snapshotSum(f, key))
	used := time.Now().Add(-age)
	if err := os.Rename(f.Name(), name); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, used, used); err != nil {
		t.Fatal(err)
	}
	return name
}

func there(name string) bool { _, err := os.Stat(name); return err == nil }

func TestASnapshotIsOfItsKeyAndWhole(t *testing.T) {
	dir := t.TempDir()
	name := keep(t, dir, "one", "memory", time.Hour)
	if s := openSnapshot(dir, "two"); s != nil {
		t.Errorf("the snapshot of another key was opened: %s", s.Name())
	}
	s := openSnapshot(dir, "one")
	if s == nil {
		t.Fatal("a snapshot was not opened")
	}
	if err := s.intact(); err != nil {
		t.Errorf("a whole one: %v", err)
	}
	// Reading its checksum must not move where QEMU reads, with the same descriptor, at the same time.
	if at, err := s.Seek(0, io.SeekCurrent); err != nil || at != 0 {
		t.Errorf("QEMU would begin to read at %d (%v)", at, err)
	}
	s.Close()
	if err := os.WriteFile(name, []byte("memorY"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSnapshot(dir, "one")
	if s == nil {
		t.Fatal("a damaged snapshot is not there any more")
	}
	defer s.Close()
	if err := s.intact(); err == nil {
		t.Error("a damaged snapshot was taken for a whole one")
	}
}

func TestSnapshotsUsedLastAreKept(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i := range keptSnapshots + 3 {
		names = append(names, keep(t, dir, fmt.Sprint("key", i), "memory", time.Duration(i)*time.Hour))
	}
	// One of the three that are too many is being used.
	held := openSnapshot(dir, fmt.Sprint("key", keptSnapshots))
	if held == nil {
		t.Fatal("a snapshot was not opened")
	}
	defer held.Close()
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(held.Name(), old, old); err != nil {
		t.Fatal(err)
	}
	if err := pruneSnapshots(dir); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if want := i <= keptSnapshots; there(name) != want {
			t.Errorf("snapshot %d of %d, the newest first, is there: %t, want %t", i, len(names), !want, want)
		}
	}
}

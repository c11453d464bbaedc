package vm

import (
	"os"
	"testing"
)

// A run that was killed leaves its folder; the next run removes it, and leaves those of living runs alone.
func TestFoldersOfDeadRunsAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does at kill -9
	alive, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.remove()
	next, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	next.remove()
	if _, err := os.Stat(dead.path); err == nil {
		t.Error("the folder of a dead run is still there")
	}
	if _, err := os.Stat(alive.path); err != nil {
		t.Error("the folder of a living run was removed")
	}
}

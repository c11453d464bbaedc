package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := TryLock(path)
	if err != nil || first == nil {
		t.Fatalf("%v, %v", first, err)
	}
	if second, err := TryLock(path); err != nil || second != nil {
		t.Errorf("a taken lock gave %v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := TryLock(path)
	if err != nil || again == nil {
		t.Fatalf("a free lock gave %v, %v", again, err)
	}
	again.Close()
}

// Acquire reports once that it waits, and takes the lock when it becomes free.
func TestAcquireWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "lock")
	first, err := Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	second, err := Acquire(t.Context(), path, func() { waits++; first.Close() })
	if err != nil || waits != 1 {
		t.Fatalf("%v after %d reports", err, waits)
	}
	defer second.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	if _, err := Acquire(ctx, path, func() { cancel(stopped) }); !errors.Is(err, stopped) {
		t.Errorf("the end of the context gave %v", err)
	}
}

func TestRangeLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	check := func(step string, want bool) {
		t.Helper()
		if locked, err := IsLocked(second); err != nil || locked != want {
			t.Errorf("%s: locked is %t, %v", step, locked, err)
		}
	}
	check("before", false)
	if taken, err := TryLockRange(first); err != nil || !taken {
		t.Fatalf("%t, %v", taken, err)
	}
	check("locked", true)
	if taken, err := TryLockRange(second); err != nil || taken {
		t.Errorf("a taken lock: %t, %v", taken, err)
	}
	first.Close()
	check("closed", false)
	if err := LockRange(second); err != nil {
		t.Error(err)
	}
}

// A killed process leaves its directory; the next one removes it, and keeps those of living processes.
func TestDirectoriesOfDeadOwnersAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, err := NewTempDir("owned-")
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does at kill -9
	alive, err := NewTempDir("owned-")
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Remove()
	next, err := NewTempDir("owned-")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
	for dir, want := range map[*TempDir]bool{dead: false, alive: true, next: false} {
		if _, err := os.Stat(dir.Path); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", dir.Path, !want, want)
		}
	}
}

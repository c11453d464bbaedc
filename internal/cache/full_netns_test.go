//go:build netns

package cache

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/testfiles"
)

// On a full disk the old content stays, and the error names the file and the reason.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	path := filepath.Join(dir, "file")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	err := WriteFile(path, bytes.Repeat([]byte("x"), 1<<20))
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v", err)
	}
	if got := content(t, path); got != "old" {
		t.Errorf("the file has %d bytes", len(got))
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("left are %q", left)
	}
	if free, err := FreeBytes(dir); err != nil || free <= 0 || free > 64<<10 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}

// tmpfs mounts a file system of that size and returns its directory and a function that makes it read-only.
func tmpfs(t *testing.T, size string) (dir string, readOnly func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	return dir, func() {
		t.Helper()
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// On a full disk an intact entry is used, without stamps. A damaged one is named with the reason, and not used; once there is
// space again it is repaired.
func TestVerifiedOnAFullDisk(t *testing.T) {
	parent, _ := tmpfs(t, "128k")
	dir := filepath.Join(parent, "entry")
	s, _, lines := source(t, dir, true)
	if _, err := Verified(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(parent, "ballast")
	fill := func() {
		t.Helper()
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for {
			if _, err := f.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
	fill()
	m, err := ReadManifest(dir)
	if err == nil {
		err = checkAt(t.Context(), dir, m, later())
	}
	if _, useErr := Verified(t.Context(), s); err != nil || useErr != nil {
		t.Errorf("the intact entry: %v, %v", err, useErr)
	}
	if _, err := os.Stat(stampsFile(dir)); err == nil {
		t.Error("stamps were written to the full disk")
	}
	testfiles.Damages()["one flipped byte"](t, filepath.Join(dir, "notes"))
	s.Make = func() (string, error) {
		return "", Write(filepath.Join(parent, "new"), func(w io.Writer) error { _, err := w.Write(make([]byte, 64<<10)); return err })
	}
	if got, err := Verified(t.Context(), s); !errors.Is(err, unix.ENOSPC) || !errors.As(err, new(*Damage)) {
		t.Errorf("the damaged entry on the full disk: %q, %v", got, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	repaired, _, _ := source(t, dir, true)
	if got, err := Verified(t.Context(), repaired); err != nil || got != "the content of boot/kernel" || len(*lines) != 1 {
		t.Errorf("with space: %q, %v; the reports %q", got, err, *lines)
	}
}

// In a read-only cache an intact entry is used. A damaged one is named, and not used.
func TestVerifiedInAReadOnlyCache(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		parent, readOnly := tmpfs(t, "128k")
		dir := filepath.Join(parent, "entry")
		s, _, _ := source(t, dir, true)
		if _, err := Verified(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if damaged {
			testfiles.Damages()["truncated"](t, filepath.Join(dir, "notes"))
		}
		readOnly()
		got, err := Verified(t.Context(), s)
		if !damaged && (err != nil || got != "the content of boot/kernel") {
			t.Errorf("the intact entry: %q, %v", got, err)
		}
		if damaged && (!errors.Is(err, unix.EROFS) || !errors.As(err, new(*Damage))) {
			t.Errorf("the damaged entry: %q, %v", got, err)
		}
		m, err := ReadManifest(dir)
		if err == nil {
			err = checkAt(t.Context(), dir, m, later())
		}
		if damaged != errors.As(err, new(*Damage)) || MarkUsed(dir) == nil {
			t.Errorf("damaged %t: %v, or a mark was written", damaged, err)
		}
	}
}

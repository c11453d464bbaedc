//go:build netns

package cache

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

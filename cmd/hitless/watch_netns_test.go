//go:build netns

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/probes/watch"
)

// A watch ends when its disk is full, and `watch stop` prints the reason. On a full disk no watch starts.
func TestWatchOnAFullDisk(t *testing.T) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	address, _ := target(t)
	out, full := smallDisk(t), smallDisk(t)
	started(t, address, out)
	takeAllRoom(t, out)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // it writes each second, until it cannot
		if _, err := watch.Status(out); err != nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the watch continues with a full disk")
		}
	}
	for range 2 { // each call prints the reason
		if code, text := call(t, "watch", "stop", "--out", out); code != exitUsage || !strings.Contains(text, "the disk is full") {
			t.Errorf("exit %d, want %d and that the disk is full:\n%s", code, exitUsage, text)
		}
	}
	takeAllRoom(t, full)
	if code, text := call(t, "watch", "start", address, "--out", full); code != exitUsage || !strings.Contains(text, "no space left on device") {
		t.Errorf("a start on a full disk: exit %d:\n%s", code, text)
	}
	if _, err := watch.Status(full); err == nil {
		t.Error("something runs on a full disk")
	}
}

// smallDisk returns a folder on a small file system.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	return dir
}

// takeAllRoom fills the file system.
func takeAllRoom(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
}

//go:build netns

package container

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Each entry into a root sees its files and its host name only, and leaves it again. suites/proxier runs this test in a VM too, whose root is
// the kernel's first one.
func TestARootHidesTheFilesAroundIt(t *testing.T) {
	layer := t.TempDir()
	if err := os.WriteFile(filepath.Join(layer, "program"), []byte("of the image"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := New(Spec{Layers: []string{layer}, Hostname: "web-1", Files: []File{{"/etc/greeting", "hello"}}})
	defer r.Close()
	for range 2 { // the first entry makes the root
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
			err := unix.Unshare(unix.CLONE_FS)
			if err == nil {
				err = r.Enter(func() error { return look(layer) })
			}
			if _, outside := os.Stat(layer); err == nil {
				err = outside
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// look returns what is wrong with the thread's root.
func look(layer string) (err error) {
	for file, want := range map[string]string{"/program": "of the image", "/etc/greeting": "hello"} {
		if text, unread := os.ReadFile(file); string(text) != want {
			err = errors.Join(err, unread, errors.New(file+" has "+string(text)))
		}
	}
	for _, file := range []string{layer, "/usr"} {
		if _, missing := os.Stat(file); missing == nil {
			err = errors.Join(err, errors.New(file+" can be seen"))
		}
	}
	var u unix.Utsname
	if failed := unix.Uname(&u); failed != nil || unix.ByteSliceToString(u.Nodename[:]) != "web-1" {
		err = errors.Join(err, failed, errors.New("another host name"))
	}
	return err
}

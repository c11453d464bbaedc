package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// folder is a guest's folder on the host: console and region. Its lock tells other runs that its owner lives.
type folder struct {
	path string
	lock *os.File
}

const folderPrefix = "hitless-vm-"

// newFolder makes a folder, and first removes those of runs that were killed before they could.
func newFolder() (*folder, error) {
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder for the guest: %w", err)
	}
	// The lock gets its name when it is held: a free one of that name is taken for a dead owner's.
	name := filepath.Join(path, "lock")
	lock, err := os.Create(name + ".new")
	if err == nil {
		err = errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), os.Rename(name+".new", name))
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, fmt.Errorf("making a folder for the guest: %w", err)
	}
	return &folder{path, lock}, nil
}

func (f *folder) remove() {
	os.RemoveAll(f.path)
	f.lock.Close()
}

// sweep removes the folders whose owners have died. One without a lock file is just being made.
func sweep(dir string) {
	locks, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*", "lock"))
	for _, name := range locks {
		lock, err := os.Open(name)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(filepath.Dir(name))
		}
		lock.Close()
	}
}

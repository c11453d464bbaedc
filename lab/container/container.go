//go:build linux

// Package container gives the programs of a pod's container their own root file system and host name. It confines nothing else: they have
// the processes, users and rights of the lab.
package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Spec describes a root file system.
type Spec struct {
	// Layers are directories of the caller's mount namespace whose entries are in the root, read-only. Of two entries with the same name the
	// first counts.
	Layers   []string
	Hostname string
	Files    []File
	Mounts   []Mount
}

// File is a file with a text, at an absolute path.
type File struct{ Path, Text string }

// Mount is a file or directory of the caller's mount namespace, at an absolute path of the root.
type Mount struct {
	From, At string
	ReadOnly bool
}

// Root is the root file system of a container. It ends with Close and its last process.
type Root struct {
	spec Spec

	mu     sync.Mutex // around what follows
	mounts *os.File   // mount namespace; nil before the first Enter and after Close
	names  *os.File   // UTS namespace
	closed bool
}

// New describes a root, which the first Enter makes.
func New(spec Spec) *Root { return &Root{spec: spec} }

// Enter runs start on the calling goroutine's thread inside of the root, and moves the thread back to its files. The thread must be locked, share its root
// directory with no other one (unshare(2), CLONE_FS), and end with its goroutine, also after an error.
func (r *Root) Enter(start func() error) error {
	leave, err := r.enter()
	if err != nil {
		return fmt.Errorf("entering the container's root: %w", errors.Join(err, leave()))
	}
	return errors.Join(start(), leave())
}

// Close frees the root when its last process has ended.
func (r *Root) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.mounts == nil {
		return nil
	}
	return errors.Join(r.mounts.Close(), r.names.Close())
}

func (r *Root) enter() (leave func() error, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	leave, err = remember()
	switch {
	case err != nil:
		return leave, err
	case r.closed:
		return leave, errors.New("the container has ended")
	case r.mounts == nil:
		return leave, r.make()
	}
	return leave, errors.Join(unix.Setns(int(r.names.Fd()), unix.CLONE_NEWUTS), unix.Setns(int(r.mounts.Fd()), unix.CLONE_NEWNS))
}

// remember returns how the thread gets back to its files. It keeps the container's host name: its own may belong to another user namespace.
func remember() (leave func() error, err error) {
	home, err := open("mnt")
	if err != nil {
		return func() error { return nil }, err
	}
	return func() error { return errors.Join(unix.Setns(int(home.Fd()), unix.CLONE_NEWNS), home.Close()) }, nil
}

// open opens a namespace of the calling thread.
func open(kind string) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), kind))
}

// make moves the thread into new namespaces, and makes the root.
func (r *Root) make() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("creating namespaces: %w", err)
	}
	if err := unix.Sethostname([]byte(r.spec.Hostname)); err != nil {
		return fmt.Errorf("setting the host name %s: %w", r.spec.Hostname, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := r.spec.build(); err != nil {
		return err
	}
	if r.names, err = open("uts"); err != nil {
		return err
	}
	if r.mounts, err = open("mnt"); err != nil {
		return errors.Join(err, r.names.Close())
	}
	return pivot()
}

// at is where the root is mounted, until it is the only one. Every node has the directory.
const at = "/run"

// build mounts the root. Mounts of /run are read before it is hidden.
func (s Spec) build() error {
	trees, err := s.openMounts()
	if err != nil {
		return err
	}
	defer closeAll(trees)
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	root := directory(at)
	for _, dir := range []string{"dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "var"} {
		if err := os.MkdirAll(filepath.Join(at, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp", "uploads"} {
		if err := os.MkdirAll(filepath.Join(at, dir), 0o1777); err != nil {
			return err
		}
	}
	for _, layer := range s.Layers {
		if err := root.addLayer(layer); err != nil {
			return fmt.Errorf("adding %s to the root: %w", layer, err)
		}
	}
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := root.bind(dir, dir, unix.MS_REC); err != nil {
			return err
		}
	}
	for _, f := range s.Files {
		if err := root.write(f); err != nil {
			return err
		}
	}
	for i, m := range s.Mounts {
		if err := root.attach(trees[i], m); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes the root the only one: it stacks the old root on top and unmounts it (pivot_root(2)).
func pivot() error {
	if err := os.Chdir(at); err != nil {
		return err
	}
	err := unix.PivotRoot(".", ".")
	if errors.Is(err, unix.EINVAL) {
		return cover()
	}
	if err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the node's root: %w", err)
	}
	return os.Chdir("/")
}

// cover makes the root the visible one where the old root is the kernel's first, as in a VM: that stays below it (switch_root(8)).
func cover() error {
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	return os.Chdir("/")
}

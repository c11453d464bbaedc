//go:build linux

package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// directory is a root that is being made.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

// addLayer adds the entries of a directory that the root does not have: directories and files are bound, links are made again.
func (d directory) addLayer(layer string) error {
	entries, err := os.ReadDir(layer)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from := filepath.Join(layer, e.Name())
		if _, err := os.Lstat(d.path(e.Name())); err == nil {
			if err := d.addBelow(from, e); err != nil {
				return err
			}
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, d.path(e.Name()))
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := d.bind(from, "/"+e.Name(), unix.MS_REC); err != nil {
			return err
		}
	}
	return nil
}

// addBelow copies the files of a directory, such as etc, that the root has already and that programs may write.
func (d directory) addBelow(from string, e os.DirEntry) error {
	if !e.IsDir() {
		return nil
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(d.path(filepath.Join(e.Name(), f.Name())), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// place makes the file or directory on which something is mounted.
func (d directory) place(at string, isDir bool) (string, error) {
	path := d.path(at)
	if isDir {
		return path, os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return path, err
	}
	f, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return path, err
	}
	return path, f.Close()
}

func (d directory) bind(from, at string, flags uintptr) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	path, err := d.place(at, info.IsDir())
	if err != nil {
		return err
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("binding %s: %w", from, err)
	}
	return nil
}

func (d directory) write(f File) error {
	if err := os.MkdirAll(filepath.Dir(d.path(f.Path)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(d.path(f.Path), []byte(f.Text), 0o644)
}

// openMounts clones the mounts, each as a descriptor.
func (s Spec) openMounts() (trees []*os.File, err error) {
	for _, m := range s.Mounts {
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.From, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening %s for %s: %w", m.From, m.At, err), closeAll(trees))
		}
		trees = append(trees, os.NewFile(uintptr(fd), m.From))
	}
	return trees, nil
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// attach mounts a clone.
func (d directory) attach(tree *os.File, m Mount) error {
	info, err := tree.Stat()
	if err != nil {
		return err
	}
	path, err := d.place(m.At, info.IsDir())
	if err != nil {
		return err
	}
	fd := int(tree.Fd())
	if m.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("making %s read-only: %w", m.At, err)
		}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting %s: %w", m.At, err)
	}
	return nil
}

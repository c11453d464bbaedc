package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// UnfinishedPrefix begins the names of files that are being written.
const UnfinishedPrefix = ".new-"

// IsUnfinished reports whether a file name is that of a file that is being written, or of what a killed process left of one.
func IsUnfinished(name string) bool { return strings.HasPrefix(name, UnfinishedPrefix) }

// WriteFile writes a file with mode 0644 in one step: readers see the old content or the new one, and after an error or a kill
// the old one stays. The directory must exist.
func WriteFile(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write is WriteFile with the content that fill writes; an error of fill leaves the old content.
func Write(path string, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), UnfinishedPrefix)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	err = fill(f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// File is the content of a file to write.
type File struct {
	Name string
	Data []byte
}

// WriteFiles writes files into a directory with mode 0644. All of them are complete on disk before the first gets its name, so that
// after a full disk or a kill the old files stay. A failed rename may leave some of the new files.
func WriteFiles(dir string, files []File) (err error) {
	var complete []string
	defer func() {
		for _, name := range complete {
			if removeErr := os.Remove(name); !errors.Is(removeErr, os.ErrNotExist) {
				err = errors.Join(err, removeErr)
			}
		}
	}()
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		t, err := os.CreateTemp(filepath.Dir(path), UnfinishedPrefix)
		if err != nil {
			return fmt.Errorf("writing %s: %w (allow this user to write to the folder, or give another one)", path, err)
		}
		complete = append(complete, t.Name())
		_, err = t.Write(f.Data)
		if err = errors.Join(err, t.Chmod(0o644), t.Close()); err != nil {
			return fmt.Errorf("writing %s: %w (the old files are unchanged)", path, err)
		}
	}
	for i, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := os.Rename(complete[i], path); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return nil
}

// Replace moves a complete file of the same file system to its final name, in the place of an older one.
func Replace(complete, path string) error { return os.Rename(complete, path) }

// installDir moves a complete directory of the same file system to its final name. When another process was first, the directory
// of the other one stays and the error is nil.
func installDir(complete, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Rename(complete, path)
	if errors.Is(err, fs.ErrExist) {
		return os.RemoveAll(complete)
	}
	return err
}

// ReplaceDir moves a complete directory of the same file system to its final name, in the place of anything that is there. Others
// see the old content or the new one. The caller holds a lock that keeps other writers away.
func ReplaceDir(complete, path string) error {
	err := exchange(complete, path)
	switch {
	case err == nil:
		return os.RemoveAll(complete) // the old content
	case errors.Is(err, fs.ErrNotExist):
		return installDir(complete, path)
	}
	// The file system cannot exchange names.
	return errors.Join(os.RemoveAll(path), installDir(complete, path))
}

// Clear removes a directory in the place of a file, which a rename could not replace.
func Clear(path string) error {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return nil
	}
	return os.RemoveAll(path)
}

// Unfinished is a file of a cache on its way to its final name, which may depend on its content. Prune does not remove it.
type Unfinished struct {
	*os.File
	done bool
}

// Create starts a file with mode 0600 in a directory, which it makes.
func Create(dir string) (*Unfinished, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.CreateTemp(dir, UnfinishedPrefix)
		if err != nil {
			return nil, err
		}
		if err := flock(f, false, true); err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close(), os.Remove(f.Name()))
		}
		if _, err := os.Lstat(f.Name()); err == nil {
			return &Unfinished{File: f}, nil
		}
		f.Close() // Prune removed the file before it was locked
	}
}

// Finish gives the file its final name in the same directory and closes it.
func (u *Unfinished) Finish(name string) error {
	path := filepath.Join(filepath.Dir(u.Name()), name)
	if err := os.Rename(u.Name(), path); err != nil {
		return err
	}
	u.done = true
	if err := u.Close(); err != nil { // content may be missing, as over NFS
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Discard closes and removes the file, unless it is finished. It is for a deferred call.
func (u *Unfinished) Discard() {
	if !u.done {
		os.Remove(u.Name())
		u.Close()
	}
}

package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// stampsDir is the directory beside entries with their stamps: one file for each entry, which Check writes. The file's own time is
// that of the last MarkUsed.
const stampsDir = ".stamps"

// settled is the age from which a file's ctime tells every later change apart. File systems count time in steps of some
// milliseconds, or of a second.
const settled = 2 * time.Second

// stamp identifies a state of a file without reading it. Programs can set the mtime, but not the ctime.
type stamp struct {
	Size, Mtime, Ctime int64 // bytes, ns, ns
	Inode, Device      uint64
}

// reading is the digest that a file had when it had the stamp.
type reading struct {
	Stamp  stamp
	Sha256 string
}

// stamps are the readings of an entry's files.
type stamps struct {
	Files   map[string]reading
	changed bool
	now     time.Time // of the check
}

func stampsFile(entry string) string {
	return filepath.Join(filepath.Dir(entry), stampsDir, filepath.Base(entry))
}

// readStamps returns no stamps for a file that is missing or damaged; all files of the entry are then read.
func readStamps(entry string) stamps {
	var s stamps
	text, err := os.ReadFile(stampsFile(entry))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return stamps{}
	}
	return s
}

// write stores the stamps if a file was read. Without them, as in a directory that cannot be written, files are read each time.
func (s *stamps) write(entry string) {
	if !s.changed {
		return
	}
	if text, err := json.Marshal(s); err == nil && makeStampsDir(entry) == nil {
		_ = WriteFile(stampsFile(entry), text)
	}
}

func makeStampsDir(entry string) error { return os.MkdirAll(filepath.Dir(stampsFile(entry)), 0o755) }

// sum returns the digest of a file, or what is there instead of a regular file. It reads the file unless it had the expected digest
// with the same stamp. The error is that of reading.
func (s *stamps) sum(ctx context.Context, path, name, expected string, read func(int)) (string, error) {
	info, err := os.Stat(path) // before opening, which would wait at a FIFO
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "nothing", nil
	case err != nil:
		return "", fmt.Errorf("checking the cache: %w", err)
	case info.IsDir():
		return "a directory", nil
	case !info.Mode().IsRegular():
		return "no regular file", nil
	}
	if s.Files[name] == (reading{stampOf(info), expected}) {
		return "sha256 " + expected, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("checking the cache: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return "", fmt.Errorf("checking the cache: %w", err)
	}
	before := stampOf(info)
	sum := sha256.New()
	if err := copyTo(ctx, sum, f, read); err != nil {
		return "", fmt.Errorf("checking the cache: reading %s: %w", path, err)
	}
	found := hex.EncodeToString(sum.Sum(nil))
	if info, err := f.Stat(); err == nil && stampOf(info) == before && s.now.Sub(time.Unix(0, before.Ctime)) >= settled {
		if s.Files == nil {
			s.Files = map[string]reading{}
		}
		s.Files[name], s.changed = reading{before, found}, true
	}
	return "sha256 " + found, nil
}

// MarkUsed makes an entry the most recently used one for Prune, which then keeps it for Limit.MinAge. Mark an entry before it is
// verified: the error of an entry that Prune has removed wraps fs.ErrNotExist. The entry is not touched, as its stamp would change.
func MarkUsed(entry string) error {
	held, err := Hold(entry)
	if err != nil {
		return err
	}
	defer held.Close()
	if _, err := os.Lstat(entry); err != nil { // removed before it was held
		return err
	}
	now, file := time.Now(), stampsFile(entry)
	err = os.Chtimes(file, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeStampsDir(entry); err == nil {
			err = WriteFile(file, []byte("{}"))
		}
	}
	return err
}

// lastUsed is the time of an entry's last MarkUsed, or that of its content if it is later.
func lastUsed(entry string, info fs.FileInfo) time.Time {
	if mark, err := os.Stat(stampsFile(entry)); err == nil && mark.ModTime().After(info.ModTime()) {
		return mark.ModTime()
	}
	return info.ModTime()
}

// pruneStamps removes the stamps of entries that have been gone for an hour, and what killed processes left of writing them.
func pruneStamps(dir string, now time.Time) error {
	files, err := os.ReadDir(filepath.Join(dir, stampsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pruning the cache: %w", err)
	}
	var errs []error
	for _, f := range files {
		info, err := f.Info()
		if err != nil || now.Sub(info.ModTime()) < time.Hour {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, f.Name())); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(filepath.Join(dir, stampsDir, f.Name())); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hitless/hitless/internal/cache"
)

// partSuffix ends the name of an incomplete recording.
const partSuffix = ".part"

// file is an incomplete recording, FILE.part, which is renamed to FILE at its end. After a kill FILE.part has complete lines without
// an end, which a parser reports.
type file struct {
	name string
	to   *os.File
}

// CheckFile returns an error if there is a complete or incomplete recording of that name. It writes nothing.
func CheckFile(name string) error {
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it exists already")
		}
		return fmt.Errorf("making %s: %w; give another file with --out", name, err)
	}
	if _, err := os.Lstat(name + partSuffix); err == nil {
		return partExists(name)
	}
	return nil
}

func partExists(name string) error {
	return fmt.Errorf("%s%s exists: another recording writes it, or was killed; move it away, or give another file with --out", name, partSuffix)
}

// create makes FILE.part. It overwrites no complete or incomplete recording.
func create(name string) (*file, error) {
	if err := CheckFile(name); err != nil {
		return nil, err
	}
	to, err := os.OpenFile(name+partSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, partExists(name)
	}
	if err != nil {
		return nil, fmt.Errorf("making the recording's file: %w; give another with --out", err)
	}
	return &file{name: name, to: to}, nil
}

// Write writes lines.
func (f *file) Write(lines []byte) (int, error) { return f.to.Write(lines) }

// finish renames the file.
func (f *file) finish() error {
	err := errors.Join(f.to.Sync(), f.to.Close())
	if err == nil {
		err = cache.Replace(f.name+partSuffix, f.name)
	}
	if err != nil {
		return fmt.Errorf("ending the recording, of which %s%s is left: %w", f.name, partSuffix, err)
	}
	return nil
}

// abandon leaves FILE.part as it is.
func (f *file) abandon() error {
	return errors.Join(f.to.Close(), fmt.Errorf("what was recorded until then is in %s%s", f.name, partSuffix))
}

// discard removes FILE.part.
func (f *file) discard() error { return errors.Join(f.to.Close(), os.Remove(f.name+partSuffix)) }

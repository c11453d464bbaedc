package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hitless/hitless/internal/cache"
)

// part is what a recording's file is called while it is written.
const part = ".part"

// file is a recording on its way: FILE.part, in which whole lines stand as soon as they are written, and FILE when it has its
// end. What a kill leaves is FILE.part, and a parser says that it is cut off.
type file struct {
	name string
	to   *os.File
}

// create makes FILE.part. It overwrites neither a recording nor what is left of one.
func create(name string) (*file, error) {
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it is there already")
		}
		return nil, fmt.Errorf("making %s: %w; give another file with --out", name, err)
	}
	to, err := os.OpenFile(name+part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s%s is there: another recording writes it, or was killed; move it away, or give another file with --out", name, part)
	}
	if err != nil {
		return nil, fmt.Errorf("making the recording's file: %w; give another with --out", err)
	}
	return &file{name: name, to: to}, nil
}

// Write writes lines.
func (f *file) Write(lines []byte) (int, error) { return f.to.Write(lines) }

// finish gives the file its name.
func (f *file) finish() error {
	err := errors.Join(f.to.Sync(), f.to.Close())
	if err == nil {
		err = cache.Replace(f.name+part, f.name)
	}
	if err != nil {
		return fmt.Errorf("ending the recording, of which %s%s is left: %w", f.name, part, err)
	}
	return nil
}

// abandon leaves FILE.part as it is.
func (f *file) abandon() error {
	return errors.Join(f.to.Close(), fmt.Errorf("what was recorded until then is in %s%s", f.name, part))
}

// discard takes FILE.part away.
func (f *file) discard() error { return errors.Join(f.to.Close(), os.Remove(f.name+part)) }

// Package input reads all files that a user names. They are regular and of bounded size, and reading them ends with its context. YAML
// is one document without repeated or unknown keys.
package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// The bounds of files, in bytes.
const (
	TextBytes    = 1 << 20   // descriptions of subjects, budgets, kubeconfigs, keys, configurations
	ReportBytes  = 64 << 20  // comparisons
	EventBytes   = 256 << 20 // timelines
	ProgramBytes = 512 << 20 // programs and other files that are packed for the guest
)

// Open opens a regular file of at most limit bytes for reading. It never waits, not even for a named pipe.
func Open(file string, limit int64) (*os.File, error) {
	if file == "" {
		return nil, errors.New("the name of the file is empty")
	}
	f, err := os.OpenFile(file, os.O_RDONLY|dontWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is a %s; give a regular file", file, kindOf(info.Mode()))
	case info.Size() > limit:
		err = tooLarge(file, limit)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Check returns the error that Open would return.
func Check(file string, limit int64) error {
	f, err := Open(file, limit)
	if err != nil {
		return err
	}
	return f.Close()
}

// Copy copies a file as Open opens it, until ctx ends. A file that grows beyond the limit meanwhile is an error.
func Copy(ctx context.Context, to io.Writer, file string, limit int64) error {
	f, err := Open(file, limit)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(to, &contextReader{ctx, io.LimitReader(f, limit+1)})
	if err == nil && n > limit {
		err = tooLarge(file, limit)
	}
	return err
}

// Read returns the content of a file as Open opens it. It ends early with the error of ctx.
func Read(ctx context.Context, file string, limit int64) ([]byte, error) {
	var b buffer
	err := Copy(ctx, &b, file, limit)
	return b.data, err
}

type buffer struct{ data []byte }

// Write appends the data.
func (b *buffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p...)
	return len(p), nil
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

// Read reads the next part.
func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

func tooLarge(file string, limit int64) error {
	unit, size := "kB", limit>>10
	if limit >= 1<<20 {
		unit, size = "MB", limit>>20
	}
	return fmt.Errorf("%s has more than %d %s, the bound for such a file", file, size, unit)
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

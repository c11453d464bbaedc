package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
)

// remains says how the guest's record ended.
type remains struct {
	trailer bool
	reason  string // why the guest gave up, empty when it did not
}

// extract writes the history and the files that a region holds into folders of their own.
func extract(region []byte, dir, history string) (left remains, err error) {
	if err := os.MkdirAll(history, 0o755); err != nil {
		return left, fmt.Errorf("making the history's folder: %w", err)
	}
	files := map[vm.FrameKind]*os.File{}
	for kind, name := range map[vm.FrameKind]string{vm.FrameEvent: reports.EventsFile, vm.FrameAttempts: reports.AttemptsFile,
		vm.FrameTimeline: reports.TimelineFile} {
		f, openErr := os.Create(filepath.Join(history, name))
		if openErr != nil {
			return left, fmt.Errorf("writing the history: %w", openErr)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		files[kind] = f
	}
	for r := vm.NewFrameReader(region); ; {
		kind, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return left, nil
		}
		if err != nil {
			return left, err
		}
		switch kind {
		case vm.FrameTrailer:
			left = remains{true, string(payload)}
		case vm.FrameFile:
			err = extractFile(dir, payload)
		case vm.FrameEvent, vm.FrameAttempts, vm.FrameTimeline:
			_, err = files[kind].Write(payload)
		default:
			err = fmt.Errorf("a frame of unknown kind %d", kind)
		}
		if err != nil {
			return left, fmt.Errorf("writing the history: %w", err)
		}
	}
}

func extractFile(dir string, payload []byte) error {
	name, content, found := bytes.Cut(payload, []byte{0})
	if !found || !filepath.IsLocal(string(name)) {
		return fmt.Errorf("the guest sent a file with the name %q", name)
	}
	path := filepath.Join(dir, string(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

package reports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// HostFile holds what the history of a run must not depend on, beside the reports.
const HostFile = "host.json"

// RunFolder is a run with what its folder tells about it.
type RunFolder struct {
	Report  *analysis.Report
	History *record.History
	Origin  record.Origin
	Started time.Time // by the clock of the host; zero when no host.json tells
}

// OpenRun computes the report of the run in a folder from its history, and reads when it was made.
func OpenRun(dir string) (*RunFolder, error) {
	h, err := record.OpenHistory(dir)
	if err != nil {
		return nil, err
	}
	f := &RunFolder{History: h}
	if f.Report, err = analysis.Build(h); err != nil {
		return nil, err
	}
	if f.Origin, err = h.Origin(); err != nil {
		return nil, err
	}
	if f.Started, err = StartedAt(os.DirFS(filepath.Dir(h.Dir()))); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Dir(h.Dir()), err)
	}
	return f, nil
}

// StartedAt tells when the run in a folder was started, from its host.json. One that was written before it had a field for
// that tells it by its own age: it is written when the run has ended. Without a host.json the time is zero.
func StartedAt(folder fs.FS) (time.Time, error) {
	data, err := fs.ReadFile(folder, HostFile)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("asking when the run was started: %w", err)
	}
	var facts struct {
		Started     time.Time `json:"started"`
		WallSeconds float64   `json:"wallSeconds"`
	}
	if err := json.Unmarshal(data, &facts); err != nil {
		return time.Time{}, fmt.Errorf("asking %s when the run was started: %w", HostFile, err)
	}
	if !facts.Started.IsZero() {
		return facts.Started, nil
	}
	info, err := fs.Stat(folder, HostFile)
	if err != nil {
		return time.Time{}, fmt.Errorf("asking when the run was started: %w", err)
	}
	return info.ModTime().Add(-time.Duration(facts.WallSeconds * float64(time.Second))), nil
}

package reports

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// HostFile holds what the history of a run must not depend on, beside the reports.
const HostFile = record.HostFile

// RunFolder is a run with what its folder tells about it.
type RunFolder struct {
	Report  *analysis.Report
	History *record.History
	Origin  record.Origin
	Started time.Time // by the clock of the host; zero when no host.json tells
}

// OpenRun computes the report of the run in a folder from its history, and reads when it was made. key is as for record.OpenSigned.
func OpenRun(dir string, key ed25519.PublicKey) (*RunFolder, error) {
	h, err := record.OpenSigned(dir, key)
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
	folder, err := h.Folder()
	if err != nil {
		return nil, err
	}
	if f.Started, err = StartedAt(os.DirFS(folder)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", folder, err)
	}
	return f, nil
}

// ReadSealed reads the report.json of a run whose record fits its seal. name is the folder's name in errors, and key is as for
// record.OpenSigned. A report with another outcome than the seal is a record.DamageError, except an invalid one of a run without a seal.
func ReadSealed(folder fs.FS, name string, key ed25519.PublicKey) (*analysis.Report, *record.History, error) {
	h, err := record.OpenSignedFS(folder, name, key)
	if err != nil {
		return nil, nil, err
	}
	data, err := record.ReadFile(folder, ReportFile)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the report: %w", err)
	}
	r, err := analysis.Parse(data, path.Join(name, ReportFile))
	if err != nil {
		return nil, nil, err
	}
	if err := FitsSeal(name, r, h); err != nil {
		return nil, nil, err
	}
	return r, h, nil
}

// FitsSeal returns a record.DamageError for a report with another outcome than the seal of its record, and for one of a run without a seal that is
// not invalid. name is the folder's name in errors.
func FitsSeal(name string, r *analysis.Report, h *record.History) error {
	why := ""
	switch {
	case h.Distrust() != "" && r.Verdict != analysis.Invalid:
		why = h.Distrust() + ", and yet its report says " + string(r.Verdict)
	case h.Distrust() == "" && r.Sealed("") != h.Seal.Sealed:
		why = fmt.Sprintf("its report says %s with %d dropped and %d delayed of %d attempts, its seal %s with %d and %d of %d; `hitless report %s` judges the record again",
			r.Verdict, r.Totals.Dropped, r.Totals.Delayed, r.Totals.Attempts, h.Seal.Verdict, h.Seal.Dropped, h.Seal.Delayed, h.Seal.Attempts, name)
	default:
		return nil
	}
	return &record.DamageError{Folder: name, Reason: why}
}

// StartedAt tells when the run in a folder was started, from its host.json. One that was written before it had a field for
// that tells it by its own age: it is written when the run has ended. Without a host.json the time is zero.
func StartedAt(folder fs.FS) (time.Time, error) {
	data, err := record.ReadFile(folder, HostFile)
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
		return time.Time{}, fmt.Errorf("reading from %s when the run was started: %w; give the time with --started 2026-01-31T12:00:00Z", HostFile, err)
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

// Package results reads all files of docs/results as rows of one type, checks which program made them and what they do not tell, and repeats
// some of them. Each format has one reader.
package results

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
)

// Row is one result of a file: a run, a spec of a suite, or a measurement.
type Row struct {
	File             string // relative to the folder of the results, with slashes
	Name             string // unique in its file
	Subject, Verdict string
	// Kinds are the classes and causes of the failures, sorted. They count only with KindsTold: older files do not have them.
	Kinds     []analysis.FailureKind
	KindsTold bool
	Wrong     string // why the result is not accepted, whatever made it; empty if it is
	// HistorySha256 is empty for a result without a history.
	HistorySha256 string
	Origin
	Again *Again // nil for a row that no command of its own repeats
}

// Origin says what made a row. A field is empty where the file does not tell.
type Origin struct {
	Program      string // SHA-256 of hitless
	Kernel       string // kind and release; of a VM also QEMU
	ControlPlane string
	Made         *record.Made // nil where the file does not tell
}

// Again repeats a row.
type Again struct {
	Args []string                                                        // of hitless, without --out
	Read func(ctx context.Context, dir string) (repeated Row, err error) // reads the results in the folder that --out named
}

// format reads the files of one kind.
type format struct {
	name string
	is   func(name string, keys keys) bool // name is the file's, without its folder
	read func(ctx context.Context, path string) ([]Row, error)
}

// keys are the names of the fields of a file of JSON; nil for another file.
type keys map[string]bool

func (k keys) has(names ...string) bool {
	for _, name := range names {
		if !k[name] {
			return false
		}
	}
	return true
}

var formats = []format{comparisons, suiteRuns, jobs, answers, verified, conformances, kills, benchmarks, upstream, besides, logs, pictures, drawings}

// UnknownError is a file that no format reads.
type UnknownError struct{ File string }

func (e *UnknownError) Error() string {
	var names []string
	for _, f := range formats {
		names = append(names, f.name)
	}
	return fmt.Sprintf("%s is no result that this hitless knows; known are %s", e.File, strings.Join(names, ", "))
}

// ReadFile reads the rows of a file below a folder of results. A file of no known format is an UnknownError.
func ReadFile(ctx context.Context, top, file string) ([]Row, error) {
	path := filepath.Join(top, filepath.FromSlash(file))
	k, err := keysOf(ctx, path)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(formats, func(f format) bool { return f.is(filepath.Base(path), k) })
	if i < 0 {
		return nil, &UnknownError{file}
	}
	rows, err := formats[i].read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%s as %s: %w", file, formats[i].name, err)
	}
	for i := range rows {
		rows[i].File = file
		slices.SortFunc(rows[i].Kinds, analysis.FailureKind.Compare)
	}
	return rows, nil
}

func keysOf(ctx context.Context, path string) (keys, error) {
	if filepath.Ext(path) != ".json" {
		return nil, input.Check(path, input.ReportBytes)
	}
	data, err := input.Read(ctx, path, input.ReportBytes)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("%s is not complete JSON: copy it again from where it was made", filepath.Base(path))
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil, nil // no format reads it
	}
	k := keys{}
	for name := range fields {
		k[name] = true
	}
	return k, nil
}

// files lists the files of results below a folder, with slashes: all but the pages (*.md).
func files(top string) (files []string, err error) {
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".md" {
			return err
		}
		name, err := filepath.Rel(top, path)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no results", top)
	}
	return files, err
}

// Read reads the rows of all files that match a pattern of path.Match below a folder. No file is an error.
func Read(ctx context.Context, top, pattern string) (rows []Row, err error) {
	paths, err := filepath.Glob(filepath.Join(top, filepath.FromSlash(pattern)))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s has no %s", top, pattern)
	}
	for _, path := range paths {
		name, relErr := filepath.Rel(top, path)
		if relErr != nil {
			return nil, relErr
		}
		found, readErr := ReadFile(ctx, top, filepath.ToSlash(name))
		if readErr != nil {
			return nil, readErr
		}
		rows = append(rows, found...)
	}
	return rows, err
}

// Lacks are the facts that a row does not tell, of those that say what made it.
func (r Row) Lacks() (facts []string) {
	for _, f := range []struct {
		fact string
		told bool
	}{
		{"the program", r.Program != ""},
		{"the kernel", r.Kernel != "" && (!strings.HasPrefix(r.Kernel, "vm ") || strings.Contains(r.Kernel, " in QEMU "))},
		{"the control plane", r.ControlPlane != ""},
		{"the programs of upstream", r.Made != nil && (len(r.Made.Programs) > 0 || !strings.Contains(r.Subject, "@"))},
		{"the tools", r.Made != nil && r.Made.Tools != ""},
		{"the date", r.Made != nil && r.Made.Started != ""},
	} {
		if !f.told {
			facts = append(facts, f.fact)
		}
	}
	return facts
}

package mutants

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites/conformance"
)

// File is where the table is committed, from the top of the tree.
const File = "docs/results/kills/mutants.json"

// Page is the page of the table, from the top of the tree.
const Page = "docs/results/kill-score.md"

// Version is the version of the table's format.
const Version = 1

// Table has what was measured of each row.
type Table struct {
	SchemaVersion int   `json:"schemaVersion"`
	Rows          []Row `json:"rows"` // sorted by name
}

// Row is a mutant or a twin.
type Row struct {
	Name  string `json:"name"`
	Cells []Cell `json:"cells"` // sorted by run
}

// Cell has the results of the specs of one run. Specs that are in no list passed.
type Cell struct {
	Run     string   `json:"run"`
	Program string   `json:"program"`           // SHA-256 of hitless, and of the faulty proxier if it ran
	Inputs  string   `json:"inputs"`            // SHA-256 of these and of the subject
	Failed  []string `json:"failed,omitempty"`  // names of specs, in the order of the catalog
	Invalid []string `json:"invalid,omitempty"` // and those that did not run
	Skipped []string `json:"skipped,omitempty"`
	// The next fields say what the cell was measured with. They are missing in cells of older versions.
	Hitless       string       `json:"hitless,omitempty"` // SHA-256 of hitless alone
	Kernel        string       `json:"kernel,omitempty"`
	ControlPlane  string       `json:"controlPlane,omitempty"`
	HistorySha256 string       `json:"historySha256,omitempty"`
	Made          *record.Made `json:"made,omitempty"`
}

// Read reads a table. A missing file is an empty table.
func Read(file string) (*Table, error) {
	data, err := input.Read(context.Background(), file, input.TextBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return &Table{SchemaVersion: Version}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the table of mutants: %w", err)
	}
	var t Table
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("reading the table of mutants %s: %w; remove the file to measure all rows again", file, err)
	}
	if t.SchemaVersion != Version {
		return nil, fmt.Errorf("%s has version %d of the table of mutants, and this program knows version %d; remove the file to measure all rows again", file, t.SchemaVersion, Version)
	}
	return &t, nil
}

// Write writes the table in one step.
func (t *Table) Write(file string) error {
	data, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the table of mutants: %w", err)
	}
	return cache.WriteFile(file, append(data, '\n'))
}

// Put adds a cell, or replaces that of the same run.
func (t *Table) Put(row string, c Cell) {
	at, found := slices.BinarySearchFunc(t.Rows, row, func(r Row, name string) int { return cmp.Compare(r.Name, name) })
	if !found {
		t.Rows = slices.Insert(t.Rows, at, Row{Name: row})
	}
	r := &t.Rows[at]
	at, found = slices.BinarySearchFunc(r.Cells, c.Run, func(c Cell, run string) int { return cmp.Compare(c.Run, run) })
	if found {
		r.Cells[at] = c
		return
	}
	r.Cells = slices.Insert(r.Cells, at, c)
}

// Cell returns the cell of a row and a run; false if it was not measured.
func (t *Table) Cell(row, run string) (Cell, bool) {
	for _, r := range t.Rows {
		for _, c := range r.Cells {
			if r.Name == row && c.Run == run {
				return c, true
			}
		}
	}
	return Cell{}, false
}

// missing are the runs of a subject that were not measured with these inputs. An invalid measurement counts only where the subject is settled,
// as a mutant that other specs have killed.
func (t *Table) missing(s Subject, inputs string, settled bool) (runs []string) {
	for _, r := range s.Runs {
		if c, measured := t.Cell(s.Name, r); !measured || c.Inputs != inputs || len(c.Invalid) > 0 && !settled {
			runs = append(runs, r)
		}
	}
	return runs
}

// passed reports whether a row passed a spec, measured with the same program.
func (t *Table) passed(row string, s conformance.Spec, program string) bool {
	c, measured := t.Cell(row, s.Run.Name)
	return measured && c.Program == program && !slices.Contains(c.Failed, s.Name) && !slices.Contains(c.Invalid, s.Name) && !slices.Contains(c.Skipped, s.Name)
}

// Kills are the specs that a mutant turned red and its twin did not, in the order of the catalog.
func (t *Table) Kills(m Mutant) (specs []conformance.Spec) {
	for _, s := range specsOf(m.subject().Runs) {
		c, _ := t.Cell(m.Name, s.Run.Name)
		if slices.Contains(c.Failed, s.Name) && t.passed(m.twin(), s, c.Program) {
			specs = append(specs, s)
		}
	}
	return specs
}

// Breaks reports whether a spec is about a feature that the mutant should break.
func (m Mutant) Breaks(s conformance.Spec) bool {
	return slices.ContainsFunc(m.Features, func(f string) bool { return slices.Contains(s.Features, f) })
}

// State is what the table says of a mutant.
type State string

// The states of a mutant. It is killed only by a spec of a feature that it should break.
const (
	Killed      State = "killed"
	Survived    State = "survived"
	NotMeasured State = "not measured" // or not all of it, or invalid, and no spec killed it
)

// StateOf is the state of a mutant.
func (t *Table) StateOf(m Mutant) State {
	for _, s := range t.Kills(m) {
		if m.Breaks(s) {
			return Killed
		}
	}
	for _, run := range m.subject().Runs {
		c, measured := t.Cell(m.Name, run)
		if !measured || len(c.Invalid) > 0 {
			return NotMeasured
		}
		if twin, too := t.Cell(m.twin(), run); len(c.Failed) > 0 && (!too || twin.Program != c.Program || len(twin.Invalid) > 0) {
			return NotMeasured // by its twin
		}
	}
	return Survived
}

// Defects are the specs of runs that the unmutated proxier did not pass, although no known deviation or skip explains that. A table with
// a defect is invalid. nil means all runs.
func (t *Table) Defects(runs []string) (specs []string) {
	for _, s := range conformance.Catalog() {
		if runs != nil && !slices.Contains(runs, s.Run.Name) {
			continue
		}
		c, _ := t.Cell(Unmutated, s.Run.Name)
		if slices.Contains(c.Invalid, s.Name) || slices.Contains(c.Failed, s.Name) && !s.Deviates {
			specs = append(specs, s.Name)
		}
	}
	return specs
}

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/scenarios/museum"
)

// MatrixFile is the page of the matrix of many subjects.
const MatrixFile = "matrix.html"

// Matrix has features as rows and subjects as columns.
type Matrix struct {
	Subjects []string
	Rows     []Row
}

// Row is a feature, or a historical bug.
type Row struct {
	Feature, Meaning string
	Cells            []Cell
}

// Cell is what a subject does of a feature.
type Cell struct {
	State  string // supported, failed, undecided, or empty: no spec; of a bug its answer
	Failed []string
	Since  string // the newest earlier version of the same mode that passed the failed specs; empty for none
}

// Class is the class of the cell on the page.
func (c Cell) Class() string {
	if class, is := classes[museum.Answer(c.State)]; is {
		return string(class)
	}
	return c.State
}

// Text is the cell as one line.
func (c Cell) Text() string {
	text := c.State
	if len(c.Failed) > 0 {
		text += ": " + strings.Join(c.Failed, ", ")
	}
	if c.Since != "" {
		text += " (not in " + c.Since + ")"
	}
	return text
}

// Join joins the reports of the shards of one call to one report. Other reports stay alone. An incomplete set of shards, or shards of
// different calls, are errors.
func Join(all []*Report) ([]*Report, error) {
	var whole []*Report
	parts := map[string][]*Report{}
	for _, r := range all {
		if r.Selected.Shard == "" {
			whole = append(whole, r)
			continue
		}
		_, of, _ := strings.Cut(r.Selected.Shard, "/")
		key := fmt.Sprintf("%s, seed %d, %s, labels %q, focus %q, skip %q, %s shards", r.Implementation.Subject, r.Seed, r.Command,
			r.Selected.Labels, r.Selected.Focus, r.Selected.Skip, of)
		parts[key] = append(parts[key], r)
	}
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		r, err := joinShards(parts[key])
		if err != nil {
			return nil, fmt.Errorf("joining the shards of %s: %w", key, err)
		}
		whole = append(whole, r)
	}
	return whole, nil
}

func joinShards(parts []*Report) (*Report, error) {
	whole, err := shard.Parse(parts[0].Selected.Shard)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	bySpec := map[string]Result{}
	joined := *parts[0]
	joined.Selected.Shard, joined.Specs = "", nil
	for _, p := range parts {
		if seen[p.Selected.Shard] {
			return nil, fmt.Errorf("shard %s is given twice", p.Selected.Shard)
		}
		seen[p.Selected.Shard] = true
		if p.Ended != "" {
			joined.Ended = p.Ended
		}
		if len(joined.Bugs) == 0 {
			joined.Bugs = p.Bugs
		} else if len(p.Bugs) > 0 && !reflect.DeepEqual(p.Bugs, joined.Bugs) {
			return nil, fmt.Errorf("shard %s has other historical bugs than another one; give all shards the same --museum", p.Selected.Shard)
		}
		if joined.Program = cmp.Or(joined.Program, p.Program); p.Program != "" && p.Program != joined.Program {
			return nil, fmt.Errorf("shard %s was made by another program than another one, %.12s and %.12s; run all shards with one", p.Selected.Shard, p.Program, joined.Program)
		}
		switch ran := p.Implementation.Name != ""; {
		case !ran: // that shard ran nothing
		case joined.Implementation.Name == "":
			joined.Implementation, joined.Site = p.Implementation, p.Site
		case p.Implementation != joined.Implementation || p.Site != joined.Site:
			return nil, fmt.Errorf("shard %s ran another proxy or on another site than another one, %s on %s and %s on %s; run all shards with one",
				p.Selected.Shard, p.Implementation.words(), p.Site.words(), joined.Implementation.words(), joined.Site.words())
		}
		for _, s := range p.Specs {
			bySpec[s.Name] = s
		}
	}
	if len(seen) != whole.Of {
		return nil, fmt.Errorf("%d of %d shards are given", len(seen), whole.Of)
	}
	for _, s := range Catalog() {
		if r, has := bySpec[s.Name]; has {
			joined.Specs = append(joined.Specs, r)
			delete(bySpec, s.Name)
		}
	}
	if len(bySpec) > 0 || len(joined.Specs) != joined.Selected.Specs {
		return nil, fmt.Errorf("the shards have %d specs of %d, and %d that this hitless does not know; use the hitless that made them", len(joined.Specs), joined.Selected.Specs, len(bySpec))
	}
	joined.conclude()
	return &joined, nil
}

// NewMatrix compares reports. Each must be of another subject.
func NewMatrix(all []*Report) (*Matrix, error) {
	m := &Matrix{}
	for _, r := range all {
		name := r.Title()
		if slices.Contains(m.Subjects, name) {
			return nil, fmt.Errorf("two reports are of %s: give one of each subject, or all shards of one call", name)
		}
		m.Subjects = append(m.Subjects, name)
	}
	for _, feature := range slices.Sorted(maps.Keys(features)) {
		row := Row{Feature: feature, Meaning: features[feature]}
		known := false
		for _, r := range all {
			cell := r.cell(feature)
			if cell.State == "failed" {
				cell.Since = lastWithout(all, r, cell.Failed)
			}
			known = known || cell.State != ""
			row.Cells = append(row.Cells, cell)
		}
		if known {
			m.Rows = append(m.Rows, row)
		}
	}
	m.Rows = append(m.Rows, bugRows(all)...)
	return m, nil
}

// Title is the subject as people call it.
func (r *Report) Title() string {
	if r.Implementation.Subject != "" {
		return r.Implementation.Subject
	}
	return cmp.Or(r.Implementation.words(), "the subject")
}

func (i Implementation) words() string {
	return strings.Join(strings.Fields(i.Name+" "+i.Version+" "+i.Mode), " ")
}

func (s Site) words() string { return s.Kernel + " with the control plane " + s.ControlPlane }

func (r *Report) cell(feature string) (c Cell) {
	passed, others := 0, 0
	for _, s := range r.Specs {
		switch {
		case !slices.Contains(s.Labels, feature):
		case s.State == Failed:
			c.Failed = append(c.Failed, s.Name)
		case s.State == Passed:
			passed++
		default:
			others++
		}
	}
	switch {
	case len(c.Failed) > 0:
		c.State = "failed"
	case others > 0:
		c.State = "undecided"
	case passed > 0:
		c.State = "supported"
	}
	return c
}

// lastWithout is the newest older version of a subject, of the same mode, that passed the specs which the subject failed; empty if there is
// none.
func lastWithout(all []*Report, of *Report, failed []string) (last string) {
	best := ""
	for _, r := range all {
		same := r.Implementation.Name == of.Implementation.Name && r.Implementation.Mode == of.Implementation.Mode
		if version := r.Implementation.Version; same && older(version, of.Implementation.Version) && r.passed(failed) && (best == "" || older(best, version)) {
			best, last = version, r.Title()
		}
	}
	return last
}

// passed reports whether all specs with these names ran and passed.
func (r *Report) passed(names []string) bool {
	left := len(names)
	for _, s := range r.Specs {
		if s.State == Passed && slices.Contains(names, s.Name) {
			left--
		}
	}
	return left == 0
}

// older compares versions such as v1.9.0 and v1.26.0 by their numbers.
func older(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) < 0 }

func numbers(version string) (all []int) {
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		var n int
		if _, err := fmt.Sscan(part, &n); err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// WriteText writes the matrix as a table.
func (m *Matrix) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(append([]string{"FEATURE"}, m.Subjects...), "\t"))
	for _, row := range m.Rows {
		words := []string{row.Feature}
		for _, c := range row.Cells {
			words = append(words, c.State)
		}
		fmt.Fprintln(w, strings.Join(words, "\t"))
	}
	return w.Flush()
}

// ReadAll reads the reports of folders and joins shards, with the errors of Read.
func ReadAll(ctx context.Context, dirs []string, key ed25519.PublicKey) ([]*Report, error) {
	var all []*Report
	for _, dir := range dirs {
		r, err := Read(ctx, dir, key)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return Join(all)
}

// WriteMatrix writes the page of a matrix into an existing folder. A single report is written too: joined shards are one.
func WriteMatrix(dir string, m *Matrix, all []*Report) error {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, "matrix.html", m); err != nil {
		return fmt.Errorf("drawing the matrix: %w", err)
	}
	err := cache.WriteFile(filepath.Join(dir, MatrixFile), page.Bytes())
	if len(all) != 1 {
		return err
	}
	return errors.Join(err, Write(dir, all[0], nil, nil))
}

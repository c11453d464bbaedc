package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/units"
)

// Finding is why rows of a file are listed, or why the file is, without rows.
type Finding struct {
	File, Why string
	Rows      []string // names
	All       bool     // these are all rows of the file
}

// Checked is what a check of all files found.
type Checked struct {
	Files    int
	Rows     []Row
	Current  int // rows of this program
	Findings []Finding
	Unread   []Finding // files that could not be read, or that no format reads
}

// Check reads all results below a folder, or those in a file. It lists the rows that another program than this one made, those that do not
// tell what made them, and those that are not accepted. program is the SHA-256 of this one.
func Check(ctx context.Context, top, program string) (*Checked, error) {
	files, err := files(top)
	if err != nil {
		return nil, fmt.Errorf("reading the results: %w; name the folder or the file that has them", err)
	}
	if len(files) == 1 && files[0] == "." {
		top, files = filepath.Dir(top), []string{filepath.Base(top)}
	}
	c := &Checked{Files: len(files)}
	for _, file := range files {
		rows, err := ReadFile(ctx, top, file)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, new(*UnknownError)):
			c.Unread = append(c.Unread, Finding{File: file, Why: "is no result that this hitless knows"})
		case err != nil:
			c.Unread = append(c.Unread, Finding{File: file, Why: err.Error()})
		}
		c.Rows = append(c.Rows, rows...)
		c.Findings = append(c.Findings, ofFile(file, rows, program)...)
		for _, r := range rows {
			if r.Program == program {
				c.Current++
			}
		}
	}
	return c, nil
}

// ofFile are the findings of the rows of one file, one for each reason.
func ofFile(file string, rows []Row, program string) (found []Finding) {
	add := func(r Row, why string) {
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Why == why })
		if i < 0 {
			i, found = len(found), append(found, Finding{File: file, Why: why})
		}
		found[i].Rows = append(found[i].Rows, r.Name)
		found[i].All = len(found[i].Rows) == len(rows)
	}
	for _, r := range rows {
		if r.Program != "" && r.Program != program {
			add(r, fmt.Sprintf("of the program %.12s", r.Program))
		}
		if lacks := r.Lacks(); len(lacks) > 0 {
			add(r, "without "+strings.Join(lacks, ", "))
		}
		if r.Wrong != "" {
			add(r, r.Wrong)
		}
	}
	return found
}

// OK reports whether nothing is listed.
func (c *Checked) OK() bool { return len(c.Findings)+len(c.Unread) == 0 }

// mostNames are named of the rows of a finding, unless all are asked for.
const mostNames = 4

// Write writes the findings, one a line, and the numbers. With all each row is named.
func (c *Checked) Write(w io.Writer, program string, all bool) error {
	var b strings.Builder
	for _, f := range slices.Concat(c.Findings, c.Unread) {
		f.write(&b, all)
	}
	b.WriteString(c.summary(program) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSummary writes the numbers as a line.
func (c *Checked) WriteSummary(w io.Writer, program string) error {
	_, err := fmt.Fprintln(w, c.summary(program))
	return err
}

func (c *Checked) summary(program string) string {
	unnamed, lacking := 0, 0
	for _, r := range c.Rows {
		if r.Program == "" {
			unnamed++
		}
		if len(r.Lacks()) > 0 {
			lacking++
		}
	}
	return fmt.Sprintf("%s in %s: %s from this program (sha256 %.12s), %s from other programs, %s without a program; %s do not tell all of what made them",
		units.Plural(len(c.Rows), "row"), units.Plural(c.Files, "file"), units.Thousands(c.Current), program, units.Thousands(len(c.Rows)-c.Current-unnamed),
		units.Thousands(unnamed), units.Thousands(lacking))
}

// Write writes a finding with the names of all of its rows as a line.
func (f Finding) Write(w io.Writer) error {
	var b strings.Builder
	f.write(&b, true)
	_, err := io.WriteString(w, b.String())
	return err
}

func (f Finding) write(b *strings.Builder, all bool) {
	if len(f.Rows) == 0 {
		fmt.Fprintf(b, "%s: %s\n", f.File, f.Why)
		return
	}
	names, which := f.Rows, units.Plural(len(f.Rows), "row")
	if f.All && len(f.Rows) > 1 {
		which = "all " + which
	}
	if f.All && !all {
		names = nil
	}
	fmt.Fprintf(b, "%s: %s %s", f.File, which, f.Why)
	if len(names) > mostNames && !all {
		names = append(slices.Clone(names[:mostNames]), fmt.Sprintf("%d more", len(names)-mostNames))
	}
	if len(names) > 0 {
		fmt.Fprintf(b, ": %s", strings.Join(names, "; "))
	}
	b.WriteString("\n")
}

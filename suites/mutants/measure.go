package mutants

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites/conformance"
	"github.com/hitless/hitless/suites/faulty"
)

// Measurement measures the rows of mutants and keeps them in a table.
type Measurement struct {
	Program string // hitless
	Faulty  string // the faulty proxier
	Out     string // folder of the results of each row, which exists
	File    string // of the table
	Mutants []Mutant
	// Examine runs `hitless conformance` with arguments, and returns its exit code.
	Examine func(ctx context.Context, args []string) (exitCode int, err error)
	Log     func(line string)
	Now     func() time.Time
}

// InvalidError is a table that proves nothing: the proxier without a fault is not green.
type InvalidError struct{ Specs []string }

func (e *InvalidError) Error() string {
	return "the table is invalid, because the proxier without a fault did not pass " + strings.Join(e.Specs, ", ")
}

// Run measures what the table does not have of these programs. Each row is written when it is complete, so that a call after an
// interrupt continues. The error is an *InvalidError where the proxier without a fault is not green; mutants that survive are none.
func (m Measurement) Run(ctx context.Context) (*Table, error) {
	t, err := Read(m.File)
	if err != nil {
		return nil, err
	}
	if err := m.measureAll(ctx, t, rows(m.Mutants)); err != nil {
		return t, err
	}
	twins := t.twins(m.Mutants)
	if len(twins) > 0 {
		m.Log("twins, where their mutants failed:")
	}
	return t, m.measureAll(ctx, t, twins)
}

// measureAll measures what the table lacks of rows.
func (m Measurement) measureAll(ctx context.Context, t *Table, of []Subject) error {
	work, err := m.plan(ctx, t, of)
	if err != nil {
		return err
	}
	var needed []string // runs in which the proxier without a fault must be green
	for _, s := range of {
		if s.Name == Unmutated {
			needed = s.Runs
		}
	}
	if len(needed) > 0 && !concerns(work, Unmutated) && len(t.Defects(needed)) > 0 {
		return &InvalidError{t.Defects(needed)} // measured before, and nothing that follows would count
	}
	total, done, begun := cost(work), 0.0, m.Now()
	for i, j := range work {
		m.Log(fmt.Sprintf("%d/%d %s: %s%s", i+1, len(work), j.subject.Name, strings.Join(j.runs, ", "), expected(m.Now(), begun, done, total)))
		if err := m.measure(ctx, t, j); err != nil {
			return err
		}
		if done += cost([]job{j}); j.subject.Name == Unmutated && len(t.Defects(needed)) > 0 {
			break // nothing that follows would count
		}
	}
	if len(needed) > 0 && len(t.Defects(needed)) > 0 {
		return &InvalidError{t.Defects(needed)}
	}
	return nil
}

// concerns reports whether a row has something to measure.
func concerns(work []job, row string) bool {
	return slices.ContainsFunc(work, func(j job) bool { return j.subject.Name == row })
}

// job is what is missing of a row.
type job struct {
	subject         Subject
	program, inputs string // as in Cell
	runs            []string
}

func (m Measurement) plan(ctx context.Context, t *Table, of []Subject) (work []job, err error) {
	program, err := cache.Sha256(ctx, m.Program)
	if err != nil {
		return nil, err
	}
	faulty, err := cache.Sha256(ctx, m.Faulty)
	if err != nil {
		return nil, err
	}
	for _, s := range of {
		j := job{subject: s, program: program}
		if s.Subject == "" {
			j.program = digest(program, faulty)
		}
		j.inputs = digest(j.program, s.Subject, fmt.Sprint(s.Faults), fmt.Sprint(s.Flags))
		killed := slices.ContainsFunc(m.Mutants, func(of Mutant) bool { return of.Name == s.Name && t.StateOf(of) == Killed })
		if j.runs = t.missing(s, j.inputs, killed); len(j.runs) > 0 {
			work = append(work, j)
		}
	}
	return work, nil
}

func digest(parts ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\n"))))
}

// The usual wall times of runs on two cores without KVM, for the expected end.
const (
	routingCost    = 20 * time.Second
	disruptionCost = 70 * time.Second
)

// cost is the usual time of jobs, in seconds.
func cost(work []job) (sum float64) {
	for _, j := range work {
		for _, r := range j.runs {
			if slices.Contains(routingRuns, r) {
				sum += routingCost.Seconds()
			} else {
				sum += disruptionCost.Seconds()
			}
		}
	}
	return sum
}

// expected tells when the work ends, at the speed so far.
func expected(now, begun time.Time, done, total float64) string {
	left := total - done
	if done > 0 {
		left *= now.Sub(begun).Seconds() / done
	}
	return fmt.Sprintf("; expected end %s", now.Add(time.Duration(left*float64(time.Second))).Format("15:04"))
}

// measure runs what is missing of a row and adds it to the table.
func (m Measurement) measure(ctx context.Context, t *Table, j job) error {
	out := filepath.Join(m.Out, strings.ReplaceAll(j.subject.Name, "/", "-"))
	subject, err := m.subject(j.subject, out)
	if err != nil {
		return err
	}
	code, err := m.Examine(ctx, []string{"--subject", subject, "--focus", conformance.FocusOf(namesOf(j.runs)...), "--out", out})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case code != 0 && code != 1 && code != 3:
		return fmt.Errorf("measuring %s: `hitless conformance` ended with exit code %d; nothing of it is kept", j.subject.Name, code)
	}
	r, err := conformance.Read(ctx, out, nil)
	if err != nil {
		return err
	}
	for _, run := range j.runs {
		c := cellOf(Cell{Run: run, Program: j.program, Inputs: j.inputs}, r)
		if err := c.identify(r, out); err != nil {
			return err
		}
		t.Put(j.subject.Name, c)
	}
	m.Log(fmt.Sprintf("%s: %s", j.subject.Name, r.Summary()))
	return t.Write(m.File)
}

// subject is the subject of a row, and its file if it is the faulty proxier.
func (m Measurement) subject(s Subject, out string) (string, error) {
	if s.Subject != "" {
		return s.Subject, nil
	}
	program, err := filepath.Abs(m.Faulty)
	if err != nil {
		return "", err
	}
	file := out + ".yaml"
	return "exec:" + file, faulty.Write(file, s.Name, program, s.Faults, s.Flags)
}

// identify adds what the cell was measured with. dir is the folder of the suite's results.
func (c *Cell) identify(r *conformance.Report, dir string) (err error) {
	folder := filepath.Join(conformance.RunsDir, c.Run)
	c.Hitless, c.Kernel, c.ControlPlane = r.Program, r.Site.Kernel, r.Site.ControlPlane
	for _, s := range r.Specs {
		if s.Run == folder {
			c.HistorySha256 = s.HistorySha256
		}
	}
	c.Made, err = record.MadeIn(os.DirFS(filepath.Join(dir, folder)))
	return err
}

// namesOf are the names of the specs of runs.
func namesOf(runs []string) (names []string) {
	for _, s := range specsOf(runs) {
		names = append(names, s.Name)
	}
	return names
}

// cellOf adds the results of the cell's run, from the report of the suite. A spec without a result is invalid.
func cellOf(c Cell, r *conformance.Report) Cell {
	for _, s := range specsOf([]string{c.Run}) {
		state := conformance.NotRun
		for _, result := range r.Specs {
			if result.Name == s.Name {
				state = result.State
			}
		}
		switch state {
		case conformance.Passed:
		case conformance.Failed:
			c.Failed = append(c.Failed, s.Name)
		case conformance.Skipped:
			c.Skipped = append(c.Skipped, s.Name)
		default:
			c.Invalid = append(c.Invalid, s.Name)
		}
	}
	return c
}

// Select returns the mutants of a list of names, such as ignore-udp,no-hairpin. An empty list is all of them.
func Select(names string) (some []Mutant, err error) {
	if names == "" {
		return All(), nil
	}
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(All(), func(m Mutant) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no mutant is called %q; %s lists them", name, Page)
		}
		some = append(some, All()[i])
	}
	return some, nil
}

// Survivors are the mutants that no spec of their features turned red, of those that were measured.
func (t *Table) Survivors(of []Mutant) (names []string) {
	for _, m := range of {
		if t.StateOf(m) == Survived {
			names = append(names, m.Name)
		}
	}
	return names
}

// IsInvalid reports whether an error is that of a table that proves nothing.
func IsInvalid(err error) bool {
	var invalid *InvalidError
	return errors.As(err, &invalid)
}

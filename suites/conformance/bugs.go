package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/scenarios/museum"
)

// Bug is what a run of the museum found of one historical bug.
type Bug struct {
	ID            string        `yaml:"id" json:"id"`
	Title         string        `yaml:"title" json:"title"`
	Answer        museum.Answer `yaml:"answer" json:"answer"`
	Reasons       []string      `yaml:"reasons" json:"reasons"`
	Seed          int64         `yaml:"seed" json:"seed"`
	HistorySha256 string        `yaml:"historySha256" json:"historySha256"` // empty where nothing was run
	Program       string        `yaml:"program" json:"program"`             // SHA-256 of hitless; empty where nothing was run
}

// ReadBugs reads the museum.json of a call of `hitless museum run --all` with the same subject. It is an error if it has results of another
// subject, a bug that this hitless does not know, another trigger, or a bug twice, and if it lacks a bug.
func ReadBugs(ctx context.Context, file, subject string) ([]Bug, error) {
	found, err := run.ReadBugs(ctx, file)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("reading the bugs in %s: it has none; give the %s of a whole `hitless museum run --all`", file, run.MuseumFile)
	}
	return bugsOf(found, file, subject)
}

func bugsOf(found []run.BugResult, file, subject string) (bugs []Bug, err error) {
	for _, f := range found {
		e, err := museum.Find(f.ID)
		_, known := classes[f.Answer]
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the bugs in %s: %w", file, err)
		case f.Subject != subject:
			return nil, fmt.Errorf("reading the bugs in %s: %s was searched in %s, and this report is of %s", file, f.ID, f.Subject, subject)
		case !known:
			return nil, fmt.Errorf("reading the bugs in %s: the answer %q of %s is none of %q", file, f.Answer, f.ID, slices.Sorted(maps.Keys(classes)))
		case len(f.Set) > 0:
			return nil, fmt.Errorf("reading the bugs in %s: %s was searched with other settings, %v; run the museum without --set", file, f.ID, f.Set)
		case f.TriggerSha256 != e.TriggerSha256():
			return nil, fmt.Errorf("reading the bugs in %s: %s was searched with another trigger than that of this hitless; run the museum again", file, f.ID)
		case slices.ContainsFunc(bugs, func(b Bug) bool { return b.ID == f.ID }):
			return nil, fmt.Errorf("reading the bugs in %s: it has %s twice", file, f.ID)
		}
		bugs = append(bugs, Bug{f.ID, f.Title, f.Answer, slices.Concat([]string{}, f.Reasons), f.Seed, f.HistorySha256, f.ProgramSha256})
	}
	var missing []string
	for _, e := range museum.All() {
		if !slices.ContainsFunc(bugs, func(b Bug) bool { return b.ID == e.ID }) {
			missing = append(missing, e.ID)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("reading the bugs in %s: it lacks %s, such as %s; give the file of a `hitless museum run --all` that has ended, or the merged one of all its shards",
			file, units.Plural(len(missing), "bug"), missing[0])
	}
	return bugs, nil
}

// classes are the classes of answers on pages: those of specs.
var classes = map[museum.Answer]State{museum.Seen: Failed, museum.NotSeen: Passed, museum.CannotTell: Invalid, museum.DoesNotApply: Skipped}

// Class is the class of the answer on the page.
func (b Bug) Class() string { return string(classes[b.Answer]) }

// BugsText counts the bugs by answer.
func (r *Report) BugsText() string {
	var answers []museum.Answer
	for _, b := range r.Bugs {
		answers = append(answers, b.Answer)
	}
	return fmt.Sprintf("%s: %s", units.Plural(len(answers), "historical bug"), museum.CountText(answers))
}

// bugRows are the bugs that a subject of the matrix has.
func bugRows(all []*Report) (rows []Row) {
	for _, e := range museum.All() {
		row, seen := Row{Feature: e.ID, Meaning: e.Title}, false
		for _, r := range all {
			var cell Cell
			for _, b := range r.Bugs {
				if b.ID == e.ID {
					cell.State, seen = string(b.Answer), seen || b.Answer == museum.Seen
				}
			}
			row.Cells = append(row.Cells, cell)
		}
		if seen {
			rows = append(rows, row)
		}
	}
	return rows
}

// Package merge joins the folders of shards to what the whole call would have written.
package merge

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/suites/conformance"
)

// Whole is what a merge made. One of the fields is set.
type Whole struct {
	Comparison  *compare.Comparison
	Conformance *conformance.Report
	Bugs        []run.BugResult
	Soak        []Seed
}

// Seed is one run of a soak.
type Seed struct {
	Name    string // of its folder
	Verdict analysis.Verdict
	History string // its sha256
}

// Folders joins the folders of all shards of one call in out, which must not exist or be empty. Nothing is written if a shard is missing,
// is given twice, or is of another call or program. key is as for record.OpenSigned.
func Folders(ctx context.Context, dirs []string, out string, key ed25519.PublicKey) (w *Whole, err error) {
	join, err := joinerOf(ctx, dirs, key)
	if err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty; give a new folder with --out", out)
	}
	claim, err := reports.ClaimComparison(out, "hitless merge")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	if _, err := claim.Begin(); err != nil {
		return nil, err
	}
	if w, err = join(claim.Work()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(claim.Work()))
	}
	return w, claim.Finish()
}

// joinerOf reads and checks the shards, and returns the function that writes the whole.
func joinerOf(ctx context.Context, dirs []string, key ed25519.PublicKey) (func(dir string) (*Whole, error), error) {
	if conformance.Is(dirs[0]) {
		return conformanceOf(ctx, dirs, key)
	}
	parts, err := shard.ReadAll(ctx, dirs)
	if err != nil {
		return nil, err
	}
	switch kind := parts[0].Kind; kind {
	case shard.Comparison:
		return comparisonOf(ctx, parts, key)
	case shard.Museum:
		return museumOf(ctx, parts, key)
	case shard.Soak:
		return soakOf(parts, key)
	default:
		return nil, fmt.Errorf("%s holds a shard of a %s, which this hitless cannot merge; use the hitless that made it", dirs[0], kind)
	}
}

func comparisonOf(ctx context.Context, parts []shard.Part, key ed25519.PublicKey) (func(string) (*Whole, error), error) {
	var read []compare.Part
	for _, p := range parts {
		part, err := compare.ReadPart(ctx, p.Dir)
		if err != nil {
			return nil, err
		}
		read = append(read, part)
	}
	c, err := compare.JoinParts(read)
	if err != nil {
		return nil, err
	}
	for i, name := range parts[0].Runs {
		dir := filepath.Join(shard.Home(parts, i).Dir, name)
		r, has := runOf(c, name)
		if !has {
			return nil, fmt.Errorf("no shard has the result of %s; run the shards again", name)
		}
		told := record.Sealed{Verdict: string(r.Verdict), Attempts: r.Attempts, Dropped: r.Dropped, Delayed: r.Delayed}
		if err := sameRecord(dir, r.HistorySha256, told, parts[0].ProgramSha256, key); err != nil {
			return nil, err
		}
	}
	return func(dir string) (*Whole, error) {
		err := copyRuns(dir, parts)
		if err == nil {
			err = compare.Write(dir, c, key)
		}
		return &Whole{Comparison: c}, err
	}, nil
}

func museumOf(ctx context.Context, parts []shard.Part, key ed25519.PublicKey) (func(string) (*Whole, error), error) {
	found := map[string]run.BugResult{}
	for _, p := range parts {
		bugs, err := run.ReadBugs(ctx, filepath.Join(p.Dir, run.MuseumFile))
		if err != nil {
			return nil, err
		}
		for _, b := range bugs {
			found[b.ID] = b
		}
	}
	whole := &Whole{}
	for i, id := range parts[0].Runs {
		b, has := found[id]
		if !has {
			return nil, fmt.Errorf("no shard has the result of %s; run the shards again", id)
		}
		told := record.Sealed{Verdict: b.Verdict, Attempts: b.Attempts, Dropped: b.Dropped, Delayed: untold}
		if b.Delayed != nil {
			told.Delayed = *b.Delayed
		}
		if err := sameRecord(filepath.Join(shard.Home(parts, i).Dir, id), b.HistorySha256, told, parts[0].ProgramSha256, key); err != nil {
			return nil, err
		}
		whole.Bugs = append(whole.Bugs, b)
	}
	return func(dir string) (*Whole, error) {
		return whole, errors.Join(copyRuns(dir, parts), run.WriteBugs(dir, whole.Bugs))
	}, nil
}

func soakOf(parts []shard.Part, key ed25519.PublicKey) (func(string) (*Whole, error), error) {
	whole := &Whole{}
	for i, name := range parts[0].Runs {
		dir := filepath.Join(shard.Home(parts, i).Dir, name)
		folder, err := reports.OpenRun(dir, key)
		if err != nil {
			return nil, err
		}
		if err := madeBy(folder.History, dir, parts[0].ProgramSha256); err != nil {
			return nil, err
		}
		whole.Soak = append(whole.Soak, Seed{name, folder.Report.Verdict, folder.Origin.HistorySha256})
	}
	return func(dir string) (*Whole, error) { return whole, copyRuns(dir, parts) }, nil
}

// untold is the number of delayed attempts in results that do not tell it.
const untold = -1

// sameRecord checks that the record in the folder of a run is the one that the results of a shard name, that its seal has the verdict and the
// counts of the results, and that the shard's program made it. A run without a record has no history, and proves nothing.
func sameRecord(dir, history string, told record.Sealed, program string, key ed25519.PublicKey) error {
	if history == "" {
		if told.Verdict == string(analysis.Pass) || told.Verdict == string(analysis.Fail) {
			return fmt.Errorf("the results name no record of %s, whose verdict is %s; run the shards again", dir, told.Verdict)
		}
		return nil
	}
	h, err := record.OpenSigned(dir, key)
	if err != nil {
		return err
	}
	if err := h.Match(history); err != nil {
		return err
	}
	if err := madeBy(h, dir, program); err != nil {
		return err
	}
	if s := h.Seal; s == nil {
		return &record.DamageError{Folder: dir, Reason: "it has no seal"}
	} else if s.Verdict != told.Verdict || s.Attempts != told.Attempts || s.Dropped != told.Dropped {
		return &record.DamageError{Folder: dir, Reason: fmt.Sprintf("the results of the shard tell %s with %d of %d attempts dropped, and its seal tells %s with %d of %d",
			told.Verdict, told.Dropped, told.Attempts, s.Verdict, s.Dropped, s.Attempts)}
	} else if told.Delayed != untold && s.Delayed != told.Delayed {
		return &record.DamageError{Folder: dir, Reason: fmt.Sprintf("the results of the shard tell %d delayed attempts, and its seal tells %d", told.Delayed, s.Delayed)}
	}
	return nil
}

// madeBy checks that a record is whole and was made by the program of its shard. One that was interrupted may have runs of an earlier call
// beside its own.
func madeBy(h *record.History, dir, program string) error {
	if why := h.Distrust(); why != "" {
		return &record.DamageError{Folder: dir, Reason: why}
	}
	return sameProgram(h, dir, program)
}

func sameProgram(h *record.History, dir, program string) error {
	if own := h.Run.ProgramSha256; own != "" && own != program {
		return fmt.Errorf("the run in %s was made by another program than its shard, %.12s and %.12s; run the shard again", dir, own, program)
	}
	return nil
}

// runOf is a comparison's run by its folder. It reports whether the comparison has the run.
func runOf(c *compare.Comparison, folder string) (found compare.Run, has bool) {
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			if filepath.Dir(r.Report) == folder {
				return r, true
			}
		}
	}
	return found, false
}

// copyRuns copies the folders of the runs of all shards. A run that needed no folder has none.
func copyRuns(dir string, parts []shard.Part) error {
	for _, p := range parts {
		for _, name := range p.Folders() {
			from := filepath.Join(p.Dir, name)
			if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err := copyRun(from, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyRun(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copying the run %s: %w", from, err)
	}
	return nil
}

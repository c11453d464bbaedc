package results

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
)

// Answers are the answers of the two specimens of a bug of the museum, each sorted by seed.
type Answers struct {
	Bad  []run.BugResult `json:"bad"`
	Good []run.BugResult `json:"good"`
}

// ReadAnswers reads a file of answers. The error is fs.ErrNotExist for a bug that was not run.
func ReadAnswers(ctx context.Context, file string) (a Answers, err error) {
	err = decode(ctx, file, &a)
	return a, err
}

// Write replaces a file of answers at once, and makes its folder.
func (a Answers) Write(file string) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answers: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return cache.WriteFile(file, append(data, '\n'))
}

// MuseumArgs are the arguments of hitless that search a subject for a bug, as the committed answers do.
func MuseumArgs(e museum.Entry, subject string, seed int64, set map[string]string) []string {
	args := []string{"museum", "run", e.ID, "--subject", subject, "--seed", strconv.FormatInt(seed, 10), "--controlplane", record.ControlReplay}
	if e.Timeline == nil {
		args = append(args, "--rate", strconv.FormatFloat(e.UsualRate(), 'g', -1, 64))
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		args = append(args, "--set", key+"="+set[key])
	}
	return args
}

// answers are files of the museum: a row for each run.
var answers = format{"answers of the museum", func(_ string, k keys) bool { return k.has("bad", "good") }, readAnswers}

func readAnswers(ctx context.Context, path string) (rows []Row, err error) {
	a, err := ReadAnswers(ctx, path)
	if err != nil {
		return nil, err
	}
	for i, b := range slices.Concat(a.Bad, a.Good) {
		row := rowOfBug(b)
		row.Name = fmt.Sprintf("%s %s seed %d", map[bool]string{true: "with it", false: "without it"}[i < len(a.Bad)], b.Subject, b.Seed)
		if e, err := museum.Find(b.ID); err == nil {
			row.Again = &Again{MuseumArgs(e, b.Subject, b.Seed, b.Set), func(_ context.Context, dir string) (Row, error) {
				again, err := run.JudgeBug(dir, e)
				return rowOfBug(again), err
			}}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func rowOfBug(b run.BugResult) Row {
	return Row{Subject: b.Subject, Verdict: fmt.Sprintf("%s, %s", b.Answer, b.Verdict), HistorySha256: b.HistorySha256,
		Kinds: kindsOf(b.Failures), KindsTold: b.Delayed != nil, Origin: Origin{b.ProgramSha256, kernelOf(b.Kernel), b.ControlPlane, b.Made}}
}

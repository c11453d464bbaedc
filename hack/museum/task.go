package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
)

// task is one run.
type task struct {
	entry    museum.Entry
	kind     kind
	specimen museum.Specimen
	seed     int64
}

// kind is what a subject is to a bug.
type kind string

const (
	bad   kind = "bad"   // the specimen with it
	good  kind = "good"  // the specimen without it
	other kind = "other" // a subject of which the entry says nothing
)

func (t task) name() string {
	name := string(t.kind)
	if t.kind == other {
		name = strings.ReplaceAll(t.specimen.Subject, "/", "-")
	}
	return fmt.Sprintf("%s-%s-%d", t.entry.ID, name, t.seed)
}

// tasksOf returns the runs of a bug on a seed: with it, and without it.
func tasksOf(e museum.Entry, seed int64) []task {
	return []task{{e, bad, e.Bad, seed}, {e, good, e.Good, seed}}
}

// specimensOf returns the runs of all bugs on the first seed, then on the next.
func specimensOf(entries []museum.Entry, seeds int) (tasks []task) {
	for seed := range int64(seeds) {
		for _, e := range entries {
			tasks = append(tasks, tasksOf(e, seed+1)...)
		}
	}
	return tasks
}

// tasksOn returns the runs of a bug on other subjects whose mode can have it. Those of its specimens are not among them.
func tasksOn(ctx context.Context, e museum.Entry, subjects []string, seed int64) (tasks []task, err error) {
	for _, name := range subjects {
		s, err := subject.Read(ctx, name)
		if err != nil {
			return nil, err
		}
		// Parameters of the specimen with the bug are those of each subject.
		if e.Applies(name, s.Mode) == "" && name != e.Bad.Subject && (name != e.Good.Subject || len(e.Good.Set) > 0) {
			tasks = append(tasks, task{e, other, museum.Specimen{Subject: name}, seed})
		}
	}
	return tasks, nil
}

// run runs one specimen, or judges its record again, and returns the answer.
func (t task) run(ctx context.Context, o options) (b run.BugResult, err error) {
	out := filepath.Join(folders, t.name())
	if o.judge {
		b, err = answer(ctx, "museum", "judge", t.entry.ID, out, "--json")
		b.Set = t.specimen.Set
	} else {
		b, err = t.runAnew(ctx, out)
	}
	if err == nil && b.Answer == museum.CannotTell && b.ProgramSha256 == "" {
		return b, exitError{3, fmt.Errorf("the run has no record, and its answer is not kept: %s", strings.Join(b.Reasons, "; "))}
	}
	if err == nil && b.Answer != museum.DoesNotApply {
		b.Made, err = record.MadeIn(os.DirFS(out))
	}
	if err == nil && t.kind == bad && b.Answer == museum.Seen && t.seed == 1 && o.pictures {
		err = draw(ctx, t.entry, out)
	}
	return b, err
}

func (t task) runAnew(ctx context.Context, out string) (b run.BugResult, err error) {
	if err := os.RemoveAll(out); err != nil {
		return b, err
	}
	args := results.MuseumArgs(t.entry, t.specimen.Subject, t.seed, t.specimen.Set)
	return answer(ctx, append(args, "--json", "--out", out, "--deadline", "1h")...) // two runs share the machine
}

// answer runs hitless and returns the answer that it prints. Its exit code depends on the answer.
func answer(ctx context.Context, args ...string) (b run.BugResult, err error) {
	stdout, err := output(ctx, args...)
	if len(stdout) == 0 {
		return b, fmt.Errorf("no answer (%w)", err)
	}
	err = json.Unmarshal(stdout, &b)
	return b, err
}

// output runs hitless. The error of an exit code other than 0 has the last line of stderr.
func output(ctx context.Context, args ...string) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, hitless, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if stdout, err = cmd.Output(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		err = fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return stdout, err
}

// draw writes the picture of a run with the bug, and its timeline if the entry has none of its own.
func draw(ctx context.Context, e museum.Entry, dir string) error {
	picture, err := exec.CommandContext(ctx, hitless, "report", "--format", "lanes", dir).Output()
	if err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 { // 1 is the verdict of the run
			return fmt.Errorf("drawing %s: %w", dir, err)
		}
	}
	drawn := []cache.File{{Name: filepath.Join(pictures, e.ID+".txt"), Data: picture}}
	steps, err := fs.ReadFile(os.DirFS(filepath.Join(dir, record.HistoryDir)), record.TimelineFile)
	if err != nil {
		return err
	}
	if len(steps) > 0 && e.Timeline == nil { // runs of some scenarios write none
		drawn = append(drawn, cache.File{Name: filepath.Join(recorded, e.ID+".timeline"), Data: steps})
	}
	return cache.WriteFiles(".", drawn)
}

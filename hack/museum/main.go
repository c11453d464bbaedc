// Command museum runs each bug of the museum against a version that has it and one that does not, on several seeds, and writes the answers
// to docs/results/museum. Answers that exist are not run again, unless FORCE=1, or they cannot tell, or the entry had another subject, other
// parameters or another trigger, or with STALE=1 another program than bin/hitless made them.
// SUBSET=k8s-134147,k8s-80403 runs only these bugs, and SEEDS=2 only the first two seeds. JUDGE=1 judges the records in out/results/museum again
// instead of running. PICTURES=1 also draws the runs of seed 1 in scenarios/museum/pictures, which are part of the program: it is another one
// then. The exit code is 1 if an answer is not the expected one.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
)

const (
	pictures = "scenarios/museum/pictures"
	folders  = "out/results/museum"
	atOnce   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := examine(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// examine runs what is missing and checks all answers of the chosen bugs.
func examine(ctx context.Context) error {
	entries, err := bugs.Select(os.Getenv("SUBSET"))
	if err != nil {
		return err
	}
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("SEEDS"), "4"))
	if err != nil || seeds < 1 || seeds > 100 {
		return fmt.Errorf("SEEDS=%s: give a number from 1 to 100", os.Getenv("SEEDS"))
	}
	files := map[string]*file{}
	for _, e := range entries {
		if files[e.ID], err = open(e.ID); err != nil {
			return err
		}
	}
	program := ""
	if os.Getenv("STALE") != "" {
		if program, err = cache.Sha256(ctx, "bin/hitless"); err != nil {
			return err
		}
	}
	if err := runMissing(ctx, missing(entries, files, seeds, program), files); err != nil {
		return err
	}
	var wrong []string
	for _, e := range entries {
		wrong = append(wrong, files[e.ID].wrong(e, seeds)...)
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// task is one run.
type task struct {
	entry    museum.Entry
	bad      bool
	specimen museum.Specimen
	seed     int64
}

func (t task) name() string {
	kind := "good"
	if t.bad {
		kind = "bad"
	}
	return fmt.Sprintf("%s-%s-%d", t.entry.ID, kind, t.seed)
}

// tasksOf returns the runs of a bug on a seed: with it, and without it where a subject without it is known.
func tasksOf(e museum.Entry, seed int64) []task {
	tasks := []task{{e, true, e.Bad, seed}}
	if e.Good.Subject != "" {
		tasks = append(tasks, task{e, false, e.Good, seed})
	}
	return tasks
}

// missing returns the runs without an answer of the program, of any if that is empty: all bugs on the first seed, then on the next.
func missing(entries []museum.Entry, files map[string]*file, seeds int, program string) (tasks []task) {
	for seed := range int64(seeds) {
		for _, e := range entries {
			for _, t := range tasksOf(e, seed+1) {
				if os.Getenv("FORCE")+os.Getenv("JUDGE") != "" || !files[e.ID].has(t, program) {
					tasks = append(tasks, t)
				}
			}
		}
	}
	return tasks
}

// runMissing runs the tasks, some at once. A run that ends with an error does not stop the others.
func runMissing(ctx context.Context, tasks []task, files map[string]*file) error {
	begun, queue, failed := time.Now(), make(chan task), []error{}
	var wait sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range atOnce {
		wait.Go(func() {
			for t := range queue {
				b, err := t.run(ctx)
				mu.Lock()
				if err == nil {
					err = files[t.entry.ID].add(t, b)
				}
				if err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", t.name(), err))
				}
				done++
				left := time.Since(begun) / time.Duration(done) * time.Duration(len(tasks)-done)
				fmt.Printf("%d of %d: %s %s; all end at about %s\n", done, len(tasks), t.name(), b.Answer, time.Now().Add(left).Format("15:04"))
				mu.Unlock()
			}
		})
	}
	for _, t := range tasks {
		select {
		case queue <- t:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	wait.Wait()
	return errors.Join(append(failed, ctx.Err())...)
}

// run runs one specimen, or judges its record again, and returns the answer.
func (t task) run(ctx context.Context) (b run.BugResult, err error) {
	out := filepath.Join(folders, t.name())
	if os.Getenv("JUDGE") != "" {
		b, err = answer(ctx, "museum", "judge", t.entry.ID, out, "--json")
		b.Set = t.specimen.Set
	} else {
		b, err = t.runAnew(ctx, out)
	}
	if err == nil {
		b.Made, err = record.MadeIn(os.DirFS(out))
	}
	if err == nil && t.bad && b.Answer == museum.Seen && t.seed == 1 && os.Getenv("PICTURES") != "" {
		err = draw(ctx, t.entry.ID, out)
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
	cmd := exec.CommandContext(ctx, "bin/hitless", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); stdout.Len() == 0 {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return b, fmt.Errorf("no answer (%w): %s", err, lines[len(lines)-1])
	}
	err = json.Unmarshal(stdout.Bytes(), &b)
	return b, err
}

// draw writes the picture of a run with the bug.
func draw(ctx context.Context, id, dir string) error {
	picture, err := exec.CommandContext(ctx, "bin/hitless", "report", "--format", "lanes", dir).Output()
	if err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 { // 1 is the verdict of the run
			return fmt.Errorf("drawing %s: %w", dir, err)
		}
	}
	return os.WriteFile(filepath.Join(pictures, id+".txt"), picture, 0o644)
}

// file has the answers of one bug.
type file struct {
	path string
	results.Answers
}

// open reads the answers of a bug; none if it was not run.
func open(id string) (*file, error) {
	f := &file{path: bugs.File(".", id)}
	var err error
	if f.Answers, err = results.ReadAnswers(context.Background(), f.path); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return f, err
}

func (f *file) list(bad bool) *[]run.BugResult {
	if bad {
		return &f.Bad
	}
	return &f.Good
}

// of reports whether a result is of the task's specimen.
func (t task) of(b run.BugResult) bool { return bugs.Of(t.specimen, b) }

// result returns the result of the task's run; one that cannot tell if there is none, or if it is one of another trigger.
func (f *file) result(t task) run.BugResult {
	trigger := t.entry.TriggerSha256()
	for _, b := range *f.list(t.bad) {
		if b.Seed == t.seed && t.of(b) && b.TriggerSha256 == trigger {
			return b
		}
	}
	return run.BugResult{Answer: museum.CannotTell}
}

// has reports whether the file has an answer of the task's run that tells something, by a program or by any.
func (f *file) has(t task, program string) bool {
	b := f.result(t)
	return b.Answer != museum.CannotTell && (program == "" || b.ProgramSha256 == program)
}

// add writes the answer of a run in the place of an earlier one. A record that was judged again keeps its trigger.
func (f *file) add(t task, b run.BugResult) error {
	list := f.list(t.bad)
	for _, old := range *list {
		if b.TriggerSha256 == "" && old.HistorySha256 == b.HistorySha256 {
			b.TriggerSha256 = old.TriggerSha256
		}
	}
	*list = append(slices.DeleteFunc(*list, func(old run.BugResult) bool { return old.Seed == t.seed || !t.of(old) }), b)
	slices.SortFunc(*list, func(x, y run.BugResult) int { return int(x.Seed - y.Seed) })
	return f.Answers.Write(f.path)
}

// wrong tells which answers are not the expected ones: a bug is seen on all seeds but one, and on no seed of the other subject.
func (f *file) wrong(e museum.Entry, seeds int) (wrong []string) {
	count := map[bool]map[museum.Answer]int{true: {}, false: {}} // by task.bad
	for seed := range int64(seeds) {
		for _, t := range tasksOf(e, seed+1) {
			count[t.bad][f.result(t).Answer]++
		}
	}
	first := f.result(tasksOf(e, 1)[0]).Answer == museum.Seen
	if seen := count[true][museum.Seen]; !first || seen < max(1, seeds-1) || seen+count[true][museum.NotSeen] < seeds {
		wrong = append(wrong, fmt.Sprintf("%s: seen in %s on %d of %d seeds", e.ID, e.Bad.Subject, seen, seeds))
	}
	if not := count[false][museum.NotSeen]; not < seeds && e.Good.Subject != "" {
		wrong = append(wrong, fmt.Sprintf("%s: not seen in %s on %d of %d seeds", e.ID, e.Good.Subject, not, seeds))
	}
	return wrong
}

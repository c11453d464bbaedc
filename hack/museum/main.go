// Command museum runs each bug of the museum against a version that has it and one that does not, on several seeds, and writes the answers
// to docs/results/museum. Answers that exist are not run again, unless FORCE=1, or they cannot tell, or the entry had another subject, other
// parameters or another trigger, or with STALE=1 another program than bin/hitless made them.
// SUBJECTS=kube-proxy@v1.37.1/ipvs,bundled runs the bugs against these subjects instead, on seed 1, where they are not the bug's specimens.
// SUBJECTS=kept runs each bug against the subjects of which docs/results/museum-subjects has an answer. SUBJECTS=versions searches the versions of
// kube-proxy with each bug whose answers do not tell them, among the first releases of the minor versions.
// SUBSET=k8s-134147,k8s-80403 runs only these bugs, and SEEDS=2 only the first two seeds. JUDGE=1 judges the records in out/results/museum again
// instead of running. PICTURES=1 also draws the runs of seed 1 in scenarios/museum/pictures, which are part of the program: it is another one
// then. The exit code is 1 if an answer is not the expected one.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/scenarios/museum"
)

const (
	pictures = "scenarios/museum/pictures"
	recorded = "scenarios/museum/recorded"
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
	program := ""
	if os.Getenv("STALE") != "" {
		if program, err = cache.Sha256(ctx, "bin/hitless"); err != nil {
			return err
		}
	}
	switch subjects := os.Getenv("SUBJECTS"); subjects {
	case "":
		return examineSpecimens(ctx, entries, program)
	case versions:
		return examineVersions(ctx, entries)
	default:
		return examineOthers(ctx, entries, strings.Split(subjects, ","), program)
	}
}

func examineSpecimens(ctx context.Context, entries []museum.Entry, program string) error {
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("SEEDS"), "4"))
	if err != nil || seeds < 1 || seeds > 100 {
		return fmt.Errorf("SEEDS=%s: give a number from 1 to 100", os.Getenv("SEEDS"))
	}
	files, err := openAll(entries, bugs.File)
	if err != nil {
		return err
	}
	if err := runAll(ctx, missing(files, specimensOf(entries, seeds), program), files); err != nil {
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

// kept stands for the subjects that have an answer.
const kept = "kept"

// examineOthers runs the bugs against other subjects. Any answer is a result, but one that cannot tell.
func examineOthers(ctx context.Context, entries []museum.Entry, names []string, program string) error {
	files, err := openAll(entries, bugs.OthersFile)
	if err != nil {
		return err
	}
	var all []task
	for _, e := range entries {
		of := names
		if slices.Equal(names, []string{kept}) {
			of = files[e.ID].subjects()
		}
		tasks, err := tasksOn(ctx, e, of, 1)
		if err != nil {
			return err
		}
		all = append(all, tasks...)
	}
	left := missing(files, all, program)
	if err := runAll(ctx, left, files); err != nil {
		return err
	}
	var unknown []string
	for _, t := range left {
		if b, has := files[t.entry.ID].result(t); has && b.Answer == museum.CannotTell {
			unknown = append(unknown, fmt.Sprintf("%s: cannot tell in %s: %s", t.entry.ID, b.Subject, strings.Join(b.Reasons, "; ")))
		}
	}
	if len(unknown) > 0 {
		return errors.New(strings.Join(unknown, "\n"))
	}
	return nil
}

// openAll reads a file of answers of each bug.
func openAll(entries []museum.Entry, path func(top, id string) string) (map[string]*file, error) {
	files := map[string]*file{}
	for _, e := range entries {
		f, err := open(path(".", e.ID))
		if err != nil {
			return nil, err
		}
		files[e.ID] = f
	}
	return files, nil
}

// missing returns the tasks without an answer of the program, of any if that is empty.
func missing(files map[string]*file, all []task, program string) (left []task) {
	for _, t := range all {
		if os.Getenv("FORCE")+os.Getenv("JUDGE") != "" || !files[t.entry.ID].has(t, program) {
			left = append(left, t)
		}
	}
	return left
}

// runAll runs the tasks and keeps their answers.
func runAll(ctx context.Context, tasks []task, files map[string]*file) error {
	return inTurn(ctx, tasks, task.name, func(t task) (string, func() error) {
		b, err := t.run(ctx)
		return string(b.Answer), func() error {
			if err == nil {
				err = files[t.entry.ID].add(t, b)
			}
			return err
		}
	})
}

// inTurn does all pieces of work, some at once, and prints the name of each with how it ended. One piece at a time is kept. One that ends with an
// error does not stop the others.
func inTurn[T any](ctx context.Context, pieces []T, name func(T) string, do func(T) (ended string, keep func() error)) error {
	begun, queue, failed := time.Now(), make(chan T), []error{}
	var wait sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range atOnce {
		wait.Go(func() {
			for piece := range queue {
				ended, keep := do(piece)
				mu.Lock()
				if err := keep(); err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", name(piece), err))
				}
				done++
				left := time.Since(begun) / time.Duration(done) * time.Duration(len(pieces)-done)
				fmt.Printf("%d of %d: %s %s; all end at about %s\n", done, len(pieces), name(piece), ended, time.Now().Add(left).Format("15:04"))
				mu.Unlock()
			}
		})
	}
	for _, piece := range pieces {
		select {
		case queue <- piece:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	wait.Wait()
	return errors.Join(append(failed, ctx.Err())...)
}

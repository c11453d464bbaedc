// Command museum runs each bug of the museum against a version that has it and one that does not, on several seeds, and writes the answers
// to docs/results/museum. Answers that exist are not run again, unless with -force, or they cannot tell, or the entry had another subject, other
// parameters or another trigger, or with -stale another program than bin/hitless made them.
// -subjects kube-proxy@v1.37.1/ipvs,bundled runs the bugs against these subjects instead, on seed 1, where they are not the bug's specimens.
// -subjects kept runs each bug against the subjects of which docs/results/museum-subjects has an answer. -subjects versions searches the versions
// of kube-proxy with each bug whose answers do not tell them, among the first releases of the minor versions.
// It is run from the top of the tree, by hack/museum.sh, which then writes the pages. Exit codes: 0 all answers are the expected ones, 1 one is
// not, 2 wrong usage or environment, 3 a run cannot tell, 130 interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
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
	hitless  = "bin/hitless"
	atOnce   = 2
)

// options are what a call asks for.
type options struct {
	entries         []museum.Entry
	subjects        string // empty for the specimens
	seeds           int
	stale, force    bool
	judge, pictures bool   // judge records instead of running; draw the runs of seed 1
	program         string // that must have made the answers, by its SHA-256; empty for any
}

// exitError is an error with the exit code of the command; that of others is 2.
type exitError struct {
	code int
	error
}

// errInterrupted is the error of a call that a signal ended.
var errInterrupted = errors.New("interrupted; the same command continues")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "museum:", err)
	}
	os.Exit(code)
}

// command is the command. It returns the exit code.
func command(ctx context.Context, args []string) (code int, err error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err == nil {
		err = o.examine(ctx)
	}
	var exit exitError
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, errInterrupted):
		return 130, err
	case ctx.Err() != nil:
		return 130, errInterrupted
	case errors.As(err, &exit):
		return exit.code, err
	}
	return 2, err
}

// parse reads the flags.
func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("museum", flag.ContinueOnError)
	subset := flags.String("subset", "", "only these `BUGS`, separated by commas")
	flags.StringVar(&o.subjects, "subjects", "", "run the bugs against these `SUBJECTS` instead, or those that are "+kept+", or search their "+versions)
	flags.IntVar(&o.seeds, "seeds", 4, "run the first `N` seeds")
	flags.BoolVar(&o.stale, "stale", false, "run again what another program than "+hitless+" answered")
	flags.BoolVar(&o.force, "force", false, "run all again")
	flags.BoolVar(&o.judge, "judge", false, "judge the records in "+folders+" again instead of running")
	flags.BoolVar(&o.pictures, "pictures", false, "draw the runs of seed 1 in "+pictures+", which are part of the program: it is another one then")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -help lists them", flags.Args())
	}
	if o.seeds < 1 || o.seeds > 100 {
		return o, fmt.Errorf("%d seeds: give a number from 1 to 100", o.seeds)
	}
	o.entries, err = bugs.Select(*subset)
	return o, err
}

// examine runs what is missing and checks all answers of the chosen bugs.
func (o options) examine(ctx context.Context) error {
	sum, err := cache.Sha256(ctx, hitless)
	if err != nil {
		return fmt.Errorf("%w; `make build` builds it", err)
	}
	if o.stale {
		o.program = sum
	}
	switch o.subjects {
	case "":
		return o.examineSpecimens(ctx)
	case versions:
		return o.examineVersions(ctx)
	}
	return o.examineOthers(ctx, strings.Split(o.subjects, ","))
}

func (o options) examineSpecimens(ctx context.Context) error {
	files, err := openAll(o.entries, bugs.File)
	if err != nil {
		return err
	}
	if err := o.runAll(ctx, o.missing(files, specimensOf(o.entries, o.seeds)), files); err != nil {
		return err
	}
	var wrong []string
	for _, e := range o.entries {
		wrong = append(wrong, files[e.ID].wrong(e, o.seeds)...)
	}
	if len(wrong) > 0 {
		return exitError{1, errors.New(strings.Join(wrong, "\n"))}
	}
	return nil
}

// kept stands for the subjects that have an answer.
const kept = "kept"

// examineOthers runs the bugs against other subjects. Any answer is a result, but one that cannot tell.
func (o options) examineOthers(ctx context.Context, names []string) error {
	files, err := openAll(o.entries, bugs.OthersFile)
	if err != nil {
		return err
	}
	var all []task
	for _, e := range o.entries {
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
	left := o.missing(files, all)
	if err := o.runAll(ctx, left, files); err != nil {
		return err
	}
	var unknown []string
	for _, t := range left {
		if b, has := files[t.entry.ID].result(t); has && b.Answer == museum.CannotTell {
			unknown = append(unknown, fmt.Sprintf("%s: cannot tell in %s: %s", t.entry.ID, b.Subject, strings.Join(b.Reasons, "; ")))
		}
	}
	if len(unknown) > 0 {
		return exitError{3, errors.New(strings.Join(unknown, "\n"))}
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

// missing returns the tasks without an answer of the program.
func (o options) missing(files map[string]*file, all []task) (left []task) {
	for _, t := range all {
		if o.force || o.judge || !files[t.entry.ID].has(t, o.program) {
			left = append(left, t)
		}
	}
	return left
}

// runAll runs the tasks and keeps their answers.
func (o options) runAll(ctx context.Context, tasks []task, files map[string]*file) error {
	return inTurn(ctx, tasks, task.name, func(t task) (string, func() error) {
		b, err := t.run(ctx, o)
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
				err := keep()
				if err != nil && ctx.Err() != nil { // a program that was interrupted tells nothing else
					fmt.Printf("%s was interrupted\n", name(piece))
					mu.Unlock()
					continue
				}
				if err != nil {
					ended, failed = "failed", append(failed, fmt.Errorf("%s: %w", name(piece), err))
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
	if ctx.Err() != nil {
		failed = append(failed, errInterrupted)
	}
	return errors.Join(failed...)
}

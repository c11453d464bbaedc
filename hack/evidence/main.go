// Command evidence makes all committed results anew with bin/hitless, by the scripts of the make targets, without those of the museum and the kill score.
// Results of this program are not made again, so that a call after an interrupt continues. Two scripts run at a time, each on its half of the
// CPUs. It ends with what changed since the call began first, in words. With -merge it copies the results of shards, which were made in other
// trees. Exit codes: 0 all was made, 1 a script failed, 2 wrong usage, 130 interrupted.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/shard"
)

const (
	program    = "bin/hitless"
	resultsDir = "docs/results"
	stateDir   = "out/evidence"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout))
}

// options are what a call asks for.
type options struct {
	steps []step
	part  shard.Shard
	plan  bool
	trees []string // to merge; nil to make results
}

// errInterrupted is the error of a call that a signal ended.
var errInterrupted = errors.New("interrupted; the same command continues")

// run is the command. It returns the exit code.
func run(args []string, stdout io.Writer) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	code := 2
	if err == nil {
		ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) { // as under nohup; without a terminal the scripts would go on alone
			ends = append(ends, syscall.SIGHUP)
		}
		ctx, stop := signal.NotifyContext(context.Background(), ends...)
		defer stop()
		code, err = 1, o.do(ctx, stdout)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		code = 130
	}
	fmt.Fprintln(os.Stderr, "evidence:", err)
	return code
}

// parse reads the flags.
func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("evidence", flag.ContinueOnError)
	part := flags.String("shard", "", "only part `I/N` of the scripts, such as 1/2")
	only := flags.String("steps", "", "only these `STEPS` of the plan, separated by commas")
	flags.BoolVar(&o.plan, "plan", false, "print the plan and stop")
	trees := flags.String("merge", "", "instead of making results, copy those of shards from these `TREES`, separated by commas")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; --help lists them", flags.Args())
	}
	if *trees != "" {
		if flags.NFlag() > 1 {
			return o, errors.New("-merge copies the results of whole plans; leave -steps, -shard and -plan out")
		}
		o.trees = strings.Split(*trees, ",")
	}
	if o.part, err = shard.Parse(*part); err != nil {
		return o, err
	}
	o.steps, err = chosen(steps, *only)
	return o, err
}

func (o options) do(ctx context.Context, stdout io.Writer) (err error) {
	if o.trees != nil {
		err = merged(ctx, stdout, o.trees)
	} else {
		err = o.evidence(ctx, stdout)
	}
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// merged copies what shards made, and says what changed.
func merged(ctx context.Context, stdout io.Writer, trees []string) error {
	sum, err := cache.Sha256(ctx, program)
	if err != nil {
		return fmt.Errorf("%w; `make build` builds it", err)
	}
	before, made, err := keepResults()
	if err != nil {
		return err
	}
	if err := merge(ctx, steps, trees, sum); err != nil {
		if made { // else it is of a call that continues
			err = errors.Join(err, os.RemoveAll(before))
		}
		return err
	}
	pages := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"), "run", "./hack/docs")
	pages.Stdout, pages.Stderr = stdout, os.Stderr
	if err := pages.Run(); err != nil {
		return fmt.Errorf("writing the pages: %w; `make docs` does it again", err)
	}
	return errors.Join(tellChanges(ctx, stdout, before, sum), os.RemoveAll(before))
}

// evidence makes what is missing, and says what changed.
func (o options) evidence(ctx context.Context, stdout io.Writer) error {
	sum, err := cache.Sha256(ctx, program)
	if err != nil {
		return fmt.Errorf("%w; `make build` builds it", err)
	}
	work, err := planned(ctx, o.steps, o.part, sum)
	if err != nil {
		return err
	}
	cpus, err := ownCPUs()
	if err != nil {
		return err
	}
	parts := halves(cpus)
	printPlan(stdout, work, len(parts), time.Now())
	if o.plan {
		return nil
	}
	if len(work) == 0 {
		return tellUntold(ctx, stdout, sum)
	}
	before, _, err := keepResults()
	if err != nil {
		return err
	}
	tool, err := lockedGo()
	if err != nil {
		return err
	}
	s := scripts{sum: sum, halves: parts, log: func(line string) { fmt.Fprintln(stdout, line) }, now: time.Now,
		run: func(ctx context.Context, s step, cpus string) error { return runScript(ctx, s, cpus, tool) }}
	failed := s.all(ctx, work)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := tellChanges(ctx, stdout, before, sum); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s; their logs are in %s, and the same command continues", strings.Join(failed, ", "), stateDir)
	}
	return os.RemoveAll(before)
}

// beforeDir has the results as they were when the call began first.
var beforeDir = filepath.Join(stateDir, "before")

// tellUntold says what changed in a call that was interrupted after its last script.
func tellUntold(ctx context.Context, stdout io.Writer, sum string) error {
	if _, err := os.Stat(beforeDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := tellChanges(ctx, stdout, beforeDir, sum); err != nil {
		return err
	}
	return os.RemoveAll(beforeDir)
}

// keepResults copies the results to a folder, and returns it. made is false if it has the copy of an earlier call that did not end well.
func keepResults() (before string, made bool, err error) {
	before = beforeDir
	if _, err = os.Stat(before); errors.Is(err, fs.ErrNotExist) {
		made, err = true, errors.Join(os.MkdirAll(stateDir, 0o755), copyResults(before))
	}
	if err != nil {
		return "", false, fmt.Errorf("keeping the results of before: %w", err)
	}
	return before, made, nil
}

// copyResults copies the results.
func copyResults(to string) error {
	part := to + ".part" // an interrupt leaves no half of a copy under the name
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.CopyFS(part, os.DirFS(resultsDir)); err != nil {
		return err
	}
	return os.Rename(part, to)
}

// tellChanges prints the changes since before, and how many rows are of the program.
func tellChanges(ctx context.Context, stdout io.Writer, before, sum string) error {
	old, err := results.Check(ctx, before, sum)
	if err != nil {
		return err
	}
	now, err := results.Check(ctx, resultsDir, sum)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "\nChanges since the last evidence:")
	for _, line := range results.Changes(old.Rows, now.Rows) {
		fmt.Fprintln(stdout, "- "+line)
	}
	fmt.Fprintln(stdout, "\n`hitless results check` lists what is not of this program, such as the museum:")
	return now.WriteSummary(stdout, sum)
}

// ownCPUs are the CPUs on which this process may run.
func ownCPUs() (cpus []int, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("reading the CPU affinity of this process: %w", err)
	}
	for n := 0; len(cpus) < allowed.Count(); n++ {
		if allowed.IsSet(n) {
			cpus = append(cpus, n)
		}
	}
	return cpus, nil
}

// halves are the CPUs for each of two scripts at a time, as taskset takes them. One CPU is one script at a time.
func halves(cpus []int) []string {
	list := func(some []int) string {
		var words []string
		for _, n := range some {
			words = append(words, strconv.Itoa(n))
		}
		return strings.Join(words, ",")
	}
	if len(cpus) < 2 {
		return []string{list(cpus)}
	}
	return []string{list(cpus[:len(cpus)/2]), list(cpus[len(cpus)/2:])}
}

// runScript runs a script with a go, and with its output in a log. An interrupt is passed on, and the script keeps what it has.
func runScript(ctx context.Context, s step, cpus, tool string) error {
	log, err := os.Create(filepath.Join(stateDir, s.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "taskset", "-c", cpus, s.script)
	cmd.Env = append(os.Environ(), "STALE=1", "SUBSET="+s.row, "GO="+tool)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	return cmd.Run()
}

// lockedGo writes a go that one script runs at a time, because all of them write the pages. It is not written while a script may execute it.
func lockedGo() (string, error) {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return "", err
	}
	tool := filepath.Join(dir, "go")
	return tool, os.WriteFile(tool, []byte("#!/bin/sh\nexec flock '"+dir+"/go.lock' "+cmp.Or(os.Getenv("GO"), "go")+" \"$@\"\n"), 0o755)
}

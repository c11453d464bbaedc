// Command evidence makes all committed results anew with bin/hitless, by the scripts of the make targets, without those of the museum and the kill score.
// Results of this program are not made again, so that a call after an interrupt continues. Two scripts run at a time, each on its half of the
// CPUs. It ends with what changed since the call began first, in words. With -merge it copies the results of shards, which were made in other
// trees. Exit codes: 0 all was made, 1 a script failed, 2 wrong usage.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

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
	part := flag.String("shard", "", "only part `I/N` of the scripts, such as 1/2")
	only := flag.String("steps", "", "only these `STEPS` of the plan, separated by commas")
	plan := flag.Bool("plan", false, "print the plan and stop")
	trees := flag.String("merge", "", "instead of making results, copy those of shards from these `TREES`, separated by commas")
	flag.Parse()
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup; without a terminal the scripts would go on alone
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	s, err := shard.Parse(*part)
	if err == nil && flag.NArg() > 0 {
		err = fmt.Errorf("%q is no flag; --help lists them", flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(2)
	}
	some, err := chosen(steps, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(2)
	}
	make := func() error { return evidence(ctx, some, s, *plan) }
	if *trees != "" {
		make = func() error { return merged(ctx, strings.Split(*trees, ",")) }
	}
	if err := make(); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

// merged copies what shards made, and says what changed.
func merged(ctx context.Context, trees []string) error {
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
	pages.Stdout, pages.Stderr = os.Stdout, os.Stderr
	if err := pages.Run(); err != nil {
		return fmt.Errorf("writing the pages: %w; `make docs` does it again", err)
	}
	return errors.Join(tellChanges(ctx, before, sum), os.RemoveAll(before))
}

// evidence makes what is missing, and says what changed.
func evidence(ctx context.Context, all []step, part shard.Shard, planOnly bool) error {
	sum, err := cache.Sha256(ctx, program)
	if err != nil {
		return fmt.Errorf("%w; `make build` builds it", err)
	}
	work, err := planned(ctx, all, part, sum)
	if err != nil {
		return err
	}
	printPlan(work, time.Now())
	if planOnly || len(work) == 0 {
		return nil
	}
	before, _, err := keepResults()
	if err != nil {
		return err
	}
	s := scripts{sum: sum, halves: halves(runtime.NumCPU()), log: func(line string) { fmt.Println(line) }, now: time.Now, run: runScript}
	failed := s.all(ctx, work)
	if ctx.Err() != nil {
		return errors.New("interrupted; the same command continues")
	}
	if err := tellChanges(ctx, before, sum); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s; their logs are in %s, and the same command continues", strings.Join(failed, ", "), stateDir)
	}
	return os.RemoveAll(before)
}

// keepResults copies the results to a folder, and returns it. made is false if it has the copy of an earlier call that did not end well.
func keepResults() (before string, made bool, err error) {
	before = filepath.Join(stateDir, "before")
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
func tellChanges(ctx context.Context, before, sum string) error {
	old, err := results.Check(ctx, before, sum)
	if err != nil {
		return err
	}
	now, err := results.Check(ctx, resultsDir, sum)
	if err != nil {
		return err
	}
	fmt.Println("\nChanges since the last evidence:")
	for _, line := range results.Changes(old.Rows, now.Rows) {
		fmt.Println("- " + line)
	}
	fmt.Println("\n`hitless results check` lists what is not of this program, such as the museum:")
	return now.WriteSummary(os.Stdout, sum)
}

// halves are the CPUs for each of two scripts at a time, as taskset takes them. One CPU is one script at a time.
func halves(cpus int) []string {
	if cpus < 2 {
		return []string{"0"}
	}
	return []string{fmt.Sprintf("0-%d", cpus/2-1), fmt.Sprintf("%d-%d", cpus/2, cpus-1)}
}

// runScript runs a script with its output in a log. An interrupt is passed on, and the script keeps what it has.
func runScript(ctx context.Context, s step, cpus string) error {
	log, err := os.Create(filepath.Join(stateDir, s.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	tool, err := lockedGo()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "taskset", "-c", cpus, s.script)
	cmd.Env = append(os.Environ(), "STALE=1", "SUBSET="+s.row, "GO="+tool)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	return cmd.Run()
}

// lockedGo is a go that one script runs at a time, because all of them write the pages.
func lockedGo() (string, error) {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return "", err
	}
	tool := filepath.Join(dir, "go")
	return tool, os.WriteFile(tool, []byte("#!/bin/sh\nexec flock '"+dir+"/go.lock' go \"$@\"\n"), 0o755)
}

// Command killscore measures whether the specs of suites/conformance can fail: it runs them against proxies with one defect each, and
// writes docs/results/kills/mutants.json. With -bugs it runs them against the specimens of the museum instead, without those of
// bugs.Unjudged, and writes docs/results/kills/museum.json. It is run from the top of the tree, by `make kill-score` and
// `make museum-kills`, which then write the pages. Exit codes: 0 every mutant was killed, 1 one survived, 2 wrong usage or environment,
// 3 the proxier without a fault is not green, or a mutant is not measured. Bugs that no spec finds are no error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/suites"
	"github.com/hitless/hitless/suites/faulty"
	"github.com/hitless/hitless/suites/mutants"
)

func main() {
	subset := flag.String("subset", "", "only these mutants or bugs, separated by commas")
	ofBugs := flag.Bool("bugs", false, "measure the specimens of the museum instead of the mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	study := measureMutants
	if *ofBugs {
		study = measureBugs
	}
	code, err := study(ctx, *subset)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "killscore:", err)
	}
	os.Exit(code)
}

func measureMutants(ctx context.Context, subset string) (exitCode int, err error) {
	some, err := mutants.Select(subset)
	if err != nil {
		return 2, err
	}
	table, exitCode, err := measure(ctx, some, mutants.File, filepath.Join("out", "kill-score"))
	if err != nil {
		return exitCode, err
	}
	fmt.Println(table.Summary())
	if survivors := table.Survivors(some); len(survivors) > 0 {
		return 1, fmt.Errorf("no spec of their features turned these mutants red: %s", strings.Join(survivors, ", "))
	}
	var unmeasured []string
	for _, m := range some {
		if table.StateOf(m) == mutants.NotMeasured {
			unmeasured = append(unmeasured, m.Name)
		}
	}
	if len(unmeasured) > 0 {
		return 3, fmt.Errorf("the runs of these mutants are invalid: %s; the same command makes them again", strings.Join(unmeasured, ", "))
	}
	return 0, nil
}

// measureBugs measures the specimens of bugs, and prints how many bugs a spec finds.
func measureBugs(ctx context.Context, subset string) (exitCode int, err error) {
	entries, err := bugs.Select(subset)
	if err != nil {
		return 2, err
	}
	kills := bugs.Kills(entries)
	if subset == "" { // whoever names one of these bugs measures it
		kills = slices.DeleteFunc(kills, func(k bugs.Kill) bool { return bugs.Unjudged[k.ID] != "" })
	}
	var of []mutants.Mutant
	for _, k := range kills {
		of = append(of, k.Mutant)
	}
	if len(of) == 0 {
		return 2, fmt.Errorf("the specimens of %s are the same subject with other parameters, or none without the bug is known: no conformance spec can tell them apart; give other bugs", subset)
	}
	table, exitCode, err := measure(ctx, of, bugs.KillsFile, filepath.Join("out", "museum-kills"))
	if err != nil {
		return exitCode, err
	}
	found := 0
	for _, k := range kills {
		if len(k.Finds(table)) > 0 {
			found++
		}
	}
	fmt.Printf("a spec of the conformance suite finds %d of %d bugs\n", found, len(of))
	return 0, nil
}

// measure measures the rows of mutants that a file lacks. The exit code counts only with an error.
func measure(ctx context.Context, of []mutants.Mutant, file, out string) (table *mutants.Table, exitCode int, err error) {
	if out, err = filepath.Abs(out); err != nil {
		return nil, 2, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, 2, err
	}
	program := filepath.Join(out, "faulty")
	if err := suites.Build(faulty.Package, program); err != nil {
		return nil, 2, err
	}
	table, err = mutants.Measurement{Program: filepath.Join("bin", "hitless"), Faulty: program, Out: out, File: file, Mutants: of, Examine: examine,
		Log: func(line string) { fmt.Println(line) }, Now: time.Now}.Run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, 130, errors.New("interrupted; the same command continues")
	case mutants.IsInvalid(err):
		return nil, 3, err
	case err != nil:
		return nil, 2, err
	}
	return table, 0, nil
}

// examine runs `hitless conformance`, whose output goes to a file beside the results.
func examine(ctx context.Context, args []string) (exitCode int, err error) {
	log, err := os.Create(args[len(args)-1] + ".log")
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "hitless"), append([]string{"conformance"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

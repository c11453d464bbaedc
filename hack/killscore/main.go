// Command killscore measures whether the specs of suites/conformance can fail: it runs them against proxies with one defect each, and
// writes docs/results/kill-score.json. It is run from the top of the tree, by `make kill-score`, which then writes the page. Exit codes: 0
// every measured mutant was killed, 1 one survived, 2 wrong usage or environment, 3 the proxier without a fault is not green.
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
	"strings"
	"syscall"
	"time"

	"github.com/hitless/hitless/suites"
	"github.com/hitless/hitless/suites/mutants"
)

func main() {
	subset := flag.String("subset", "", "only these mutants, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := measure(ctx, *subset)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "killscore:", err)
	}
	os.Exit(code)
}

func measure(ctx context.Context, subset string) (exitCode int, err error) {
	some, err := mutants.Select(subset)
	if err != nil {
		return 2, err
	}
	out, err := filepath.Abs(filepath.Join("out", "kill-score"))
	if err != nil {
		return 2, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return 2, err
	}
	faulty := filepath.Join(out, "faulty")
	if err := suites.Build(suites.FaultyPackage, faulty); err != nil {
		return 2, err
	}
	table, err := mutants.Measurement{Program: filepath.Join("bin", "hitless"), Faulty: faulty, Out: out, File: mutants.File, Mutants: some, Examine: examine,
		Log: func(line string) { fmt.Println(line) }, Now: time.Now}.Run(ctx)
	switch {
	case ctx.Err() != nil:
		return 130, errors.New("interrupted; the same command continues")
	case mutants.IsInvalid(err):
		return 3, err
	case err != nil:
		return 2, err
	}
	fmt.Println(table.Summary())
	if survivors := table.Survivors(some); len(survivors) > 0 {
		return 1, fmt.Errorf("no spec of their features turned these mutants red: %s", strings.Join(survivors, ", "))
	}
	return 0, nil
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

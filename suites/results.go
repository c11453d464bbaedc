package suites

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/onsi/ginkgo/v2"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
)

var resultsDir = flag.String("results", "", "directory for SUITE.json, the results of the suite's runs; not written when empty")

// started holds the runs of this process for the results file.
var started struct {
	sync.Mutex
	runs []*Future
}

// With parallel processes only the first one's runs are written. A suite that starts no runs, such as cost, has no results file.
var _ = ginkgo.ReportAfterSuite("results file", func(r ginkgo.Report) {
	if *resultsDir == "" || len(r.SpecialSuiteFailureReasons) > 0 { // a suite that ended early has a part of its runs
		return
	}
	started.Lock()
	defer started.Unlock()
	runs := kept(started.runs)
	if len(runs) == 0 {
		return
	}
	if err := compare.NewSuite(r.SuiteDescription, runs).Write(*resultsDir); err != nil {
		ginkgo.Fail(err.Error())
	}
})

// kept are the entries of the runs that have a history. A run that was interrupted, or whose lab did not start, has none. Each entry has a command
// of its own: a run that repeats another one also names its folder.
func kept(started []*Future) (runs []compare.SuiteRun) {
	seen := map[string]bool{}
	for _, f := range started {
		<-f.done
		r := f.runResult
		if errors.Is(f.err, context.Canceled) || r.HistorySha256 == "" {
			continue
		}
		if seen[r.Command] {
			r.Command += " --out " + f.name
		}
		seen[r.Command] = true
		runs = append(runs, r)
	}
	return runs
}

// newRunResult returns the entry of a run. A run without a report is invalid. Where the command cannot repeat the run, it names the folder
// of the run too.
func newRunResult(name string, o run.Options, result *run.Result) compare.SuiteRun {
	r := compare.SuiteRun{Scenario: o.Scenario, Subject: o.Subject, Run: compare.InvalidRun(o.Seed, "", "")}
	if result == nil || result.Report == nil {
		return r
	}
	r.Scenario = result.Report.Run.Scenario // the options of a replay have no scenario
	r.Run = compare.RunOf(result.Report, "", result.HistorySha256)
	if h, err := record.OpenHistory(result.Dir); err == nil {
		r.Command = h.Run.Command
	}
	if made, err := record.MadeIn(os.DirFS(result.Dir)); err == nil {
		r.Made = made // without it `hitless results check` lists the run
	}
	file, described := strings.CutPrefix(o.Subject, "exec:")
	if described { // the suite removes the directory
		r.Subject = "exec:" + filepath.Base(file)
		r.Command = strings.ReplaceAll(r.Command, o.Subject, r.Subject)
	}
	if described || o.Kernel == "host" { // on the host's kernel the same command gives another history
		r.Command += " --out " + name
	}
	return r
}

// Package suites has the shared code of the test suites: a fresh binary, parallel runs, checks of reports, and results files. Each
// suite is a package below. The specs run on the host, and each of their runs has a VM of its own.
package suites

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
)

// Nightly labels the specs that are too slow for CI. `make nightly` runs them, `make lab-test` does not.
var Nightly = ginkgo.Label("nightly")

// Host labels the specs with a lab on this machine's kernel, whose clock is real. `make lab-test` runs them on CPUs that are nearly free.
var Host = ginkgo.Label("host")

// Smoke labels the specs of `make smoke`, which together use every part of hitless.
var Smoke = ginkgo.Label(smoke)

const smoke = "smoke"

// RunsUnlabeled reports whether specs without a label run. Suites start the runs of those specs only then.
func RunsUnlabeled() bool { return Selected(ginkgo.Label()) }

// SkipsByDesign says that specs of this suite skip where they do not apply, as those of conformance do.
var SkipsByDesign bool

// A skipped smoke spec proves nothing, so it fails its suite. In CI each skipped spec does.
var _ = ginkgo.ReportAfterSuite("no spec skips", func(r ginkgo.Report) {
	everywhere := os.Getenv("CI") != "" && !SkipsByDesign
	if skipped := skippedSpecs(r.SpecReports, everywhere); len(skipped) > 0 {
		ginkgo.Fail("specs were skipped: " + strings.Join(skipped, "; "))
	}
})

// skippedSpecs returns the specs that called Skip, with their reasons: all, or those of smoke. Specs excluded by a filter have no reason.
func skippedSpecs(specs types.SpecReports, all bool) (skipped []string) {
	for _, s := range specs {
		if s.State == types.SpecStateSkipped && s.Failure.Message != "" && (all || slices.Contains(s.Labels(), smoke)) {
			skipped = append(skipped, s.FullText()+": "+s.Failure.Message)
		}
	}
	return skipped
}

// Selected reports whether specs with these labels run. BeforeSuite nodes use it to start only the runs that are needed.
func Selected(l ginkgo.Labels) bool { return l.MatchesLabelFilter(ginkgo.GinkgoLabelFilter()) }

// programVariable names a program that was just built from this tree. `make lab-test` sets it, so that its suites do not build one each.
const programVariable = "HITLESS_PROGRAM"

// Program returns the binary that the guests run: that of HITLESS_PROGRAM, or a new one, built once in each suite.
var Program = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(programVariable); program != "" {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "hitless-suite-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "hitless")
	return program, Build("github.com/hitless/hitless/cmd/hitless", program)
})

// TestProgram builds hitless with build tag lab, which adds the guest programs of tests, such as guest.TestsScenario.
func TestProgram(file string) error {
	return build("github.com/hitless/hitless/cmd/hitless", file, "build", "-tags", "lab")
}

// Build builds a package as a static program without symbols and commit stamp. The same sources must give the same program, because
// the program is an input of the history. Errors include the compiler's output.
func Build(source, program string) error { return build(source, program, "build") }

// BuildTests builds the tests of a package, and those with a tag, as Build does.
func BuildTests(source, program, tag string) error {
	return build(source, program, "test", "-c", "-vet=off", "-tags", tag)
}

// build calls a subcommand of go that compiles. With these flags programs and tests share the compiled packages.
func build(source, program string, subcommand ...string) error {
	args := append(subcommand, "-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, source)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", source, err, out)
	}
	return nil
}

// RemoveProgram removes the binary if Program built it.
func RemoveProgram() error {
	if os.Getenv(programVariable) != "" {
		return nil
	}
	program, err := Program()
	if err != nil {
		return nil // the runs have reported the error
	}
	return os.RemoveAll(filepath.Dir(program))
}

// Future is a started run.
type Future struct {
	done      chan struct{}
	result    *run.Result
	err       error
	log       bytes.Buffer
	name      string
	runResult compare.SuiteRun
}

// Start starts a run in the background. Its results go to the directory name below dir.
func Start(ctx context.Context, dir, name string, o run.Options) *Future {
	f := &Future{done: make(chan struct{}), name: name}
	started.Lock()
	started.runs = append(started.runs, f)
	started.Unlock()
	go func() {
		defer close(f.done)
		defer func() { f.runResult = newRunResult(name, o, f.result) }()
		if o.Program, f.err = Program(); f.err != nil {
			return
		}
		o.Out = filepath.Join(dir, name)
		var mu sync.Mutex
		log, callback := progress.Lines(func(line string) { fmt.Fprintln(&f.log, line) }), o.Progress
		o.Progress = func(e progress.Event) {
			mu.Lock()
			defer mu.Unlock()
			log(e)
			if callback != nil {
				callback(e)
			}
		}
		f.result, f.err = run.Run(ctx, o)
	}()
	return f
}

// Wait waits for the run and returns its result and history. Errors include the run's progress.
func (f *Future) Wait() (*run.Result, *record.History, error) {
	<-f.done
	if f.err != nil {
		return f.result, nil, fmt.Errorf("%w\n%s", f.err, f.log.String())
	}
	h, err := record.OpenHistory(f.result.Dir)
	return f.result, h, err
}

// A suite without a spec proves nothing. A misspelled focus, skip or label filter can cause that unnoticed.
var _ = ginkgo.ReportAfterSuite("at least one spec runs", func(r ginkgo.Report) {
	if err := checkSpecsRan(r); err != nil {
		ginkgo.Fail(err.Error())
	}
})

// knownFilters are the label filters of the make targets (Makefile, hack/lab-test.sh), which some suites have no spec for.
var knownFilters = []string{"", smoke, "!nightly && !host", "host && !nightly"}

// Partial says that this process has a part of a suite, which may be none of its specs.
var Partial bool

// checkSpecsRan returns an error when a filter other than those of the make targets left no spec.
func checkSpecsRan(r ginkgo.Report) error {
	ran := slices.ContainsFunc(r.SpecReports, func(s types.SpecReport) bool {
		return s.LeafNodeType == types.NodeTypeIt && !s.State.Is(types.SpecStateSkipped|types.SpecStatePending)
	})
	c := r.SuiteConfig
	words := slices.Concat(c.FocusStrings, c.SkipStrings, c.FocusFiles, c.SkipFiles)
	switch {
	case ran || c.DryRun || Partial:
		return nil
	case len(words) > 0:
		return fmt.Errorf("no spec ran: the filter %q matches no spec", words)
	case !slices.Contains(knownFilters, c.LabelFilter):
		return fmt.Errorf("no spec ran: the label filter %q matches no spec; the labels are %s, nightly and host", c.LabelFilter, smoke)
	}
	return nil
}

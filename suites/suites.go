// Package suites has what the suites share: a fresh binary, and runs that go on side by side. The specs stand in the
// packages below, one for each profile. They run on the host; each run has a machine of its own.
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
)

// Nightly labels what CI has no time for: `make nightly` runs it, `make lab-test` leaves it out.
var Nightly = ginkgo.Label("nightly")

// Smoke labels a spec of each suite that `make smoke` runs: together they see that every part of hitless works here.
var Smoke = ginkgo.Label(smoke)

const smoke = "smoke"

// Whole says whether more is asked for than specs with a label: the runs that only those without need are not begun otherwise.
func RunsUnlabeled() bool { return Selected(ginkgo.Label()) }

// A smoke spec that skips has seen nothing, and its suite fails.
var _ = ginkgo.ReportAfterSuite("no smoke spec skips", func(r ginkgo.Report) {
	if skipped := smokeSkipped(r.SpecReports); len(skipped) > 0 {
		ginkgo.Fail("smoke specs were skipped: " + strings.Join(skipped, "; "))
	}
})

// smokeSkipped are the smoke specs that skipped themselves, with their reasons. What a filter leaves out has none.
func smokeSkipped(specs types.SpecReports) (skipped []string) {
	for _, s := range specs {
		if s.State == types.SpecStateSkipped && s.Failure.Message != "" && slices.Contains(s.Labels(), smoke) {
			skipped = append(skipped, s.FullText()+": "+s.Failure.Message)
		}
	}
	return skipped
}

// Selected says whether specs with these labels run, for those who must begin runs before their specs are reached.
func Selected(l ginkgo.Labels) bool { return l.MatchesLabelFilter(ginkgo.GinkgoLabelFilter()) }

// Program builds the binary that the guests run, once a suite, so that a stale one is never tested.
var Program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hitless-suite-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "hitless")
	return program, Build("github.com/hitless/hitless/cmd/hitless", program)
})

// TestProgram builds hitless with the guest programs for tests (build tag lab) as a file, such as guest.TestsScenario.
func TestProgram(file string) error {
	return build("github.com/hitless/hitless/cmd/hitless", file, "-tags", "lab")
}

// Build makes a static program of a package, stripped, and without a stamp of the commit: what runs in a guest decides its history, so
// the same sources must give the same program. An error has what the compiler said.
func Build(source, program string) error { return build(source, program) }

func build(source, program string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program}, flags...)
	cmd := exec.Command("go", append(args, source)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", source, err, out)
	}
	return nil
}

// Clean removes the binary that Program built.
func Clean() error {
	program, err := Program()
	if err != nil {
		return nil // nothing was built, and the runs have said so
	}
	return os.RemoveAll(filepath.Dir(program))
}

// Future is a run that was begun.
type Future struct {
	done   chan struct{}
	result *run.Result
	err    error
	log    bytes.Buffer
	joint  JointRun
}

// Begin starts a run; it takes a CPU of its own when one is free. The results go to a folder below dir.
func Begin(ctx context.Context, dir, name string, o run.Options) *Future {
	f := &Future{done: make(chan struct{})}
	begun.Lock()
	begun.runs = append(begun.runs, f)
	begun.Unlock()
	go func() {
		defer close(f.done)
		defer func() { f.joint = newJointRun(o, f.result) }()
		if o.Program, f.err = Program(); f.err != nil {
			return
		}
		o.Out = filepath.Join(dir, name)
		var mu sync.Mutex
		log, also := progress.Lines(func(line string) { fmt.Fprintln(&f.log, line) }), o.Progress
		o.Progress = func(e progress.Event) {
			mu.Lock()
			defer mu.Unlock()
			log(e)
			if also != nil {
				also(e)
			}
		}
		f.result, f.err = run.Run(ctx, o)
	}()
	return f
}

// Wait returns the run's result, its folder and history included. An error has the run's progress with it.
func (f *Future) Wait() (*run.Result, *record.History, error) {
	<-f.done
	if f.err != nil {
		return f.result, nil, fmt.Errorf("%w\n%s", f.err, f.log.String())
	}
	h, err := record.OpenHistory(f.result.Dir)
	return f.result, h, err
}

// What runs nothing has seen nothing: words that focus or skip, or a label that no spec has, can leave a suite empty without
// anybody's noticing.
var _ = ginkgo.ReportAfterSuite("something runs", func(r ginkgo.Report) {
	if why := ranNothing(r); why != "" {
		ginkgo.Fail(why)
	}
})

// knownFilters are the label filters of this house, which leave some suites without a spec on purpose.
var knownFilters = []string{"", smoke, "!nightly", "nightly"}

// ranNothing says why a suite that ran no spec cannot be taken for one that passed; empty when it can.
func ranNothing(r ginkgo.Report) string {
	ran := slices.ContainsFunc(r.SpecReports, func(s types.SpecReport) bool {
		return s.LeafNodeType == types.NodeTypeIt && !s.State.Is(types.SpecStateSkipped|types.SpecStatePending)
	})
	c := r.SuiteConfig
	words := slices.Concat(c.FocusStrings, c.SkipStrings, c.FocusFiles, c.SkipFiles)
	switch {
	case ran || c.DryRun:
		return ""
	case len(words) > 0:
		return fmt.Sprintf("no spec ran: %q left none; spell it as the specs do", words)
	case !slices.Contains(knownFilters, c.LabelFilter):
		return fmt.Sprintf("no spec ran: the label filter %q left none; the labels are %s and nightly", c.LabelFilter, smoke)
	}
	return ""
}

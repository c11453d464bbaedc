package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/reports"
)

// Suite is a suite whose specs are registered with Ginkgo.
type Suite struct {
	ctx     context.Context // ends all runs
	config  Config
	planned []Planned
	whole   int
	begun   time.Time
	tally   *tally

	collector *collector
	cancel    context.CancelFunc
	claim     *reports.Claim
	report    *Report
	err       error // of the results' folder
}

// entryName is the name of the report entry of a spec.
const entryName = "conformance"

// entry is what a spec that ran leaves in Ginkgo's report, as JSON.
type entry struct {
	Outcome  outcome   `json:"outcome"`
	Evidence *Evidence `json:"evidence"`
}

// Register checks a call and registers its specs with Ginkgo, before RunSpecs. Every error is a wrong call.
func Register(ctx context.Context, c Config) (*Suite, error) {
	c = c.withDefaults()
	planned, whole, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	s := &Suite{ctx: ctx, config: c, planned: planned, whole: whole, begun: time.Now(), tally: newTally(planned, c.Progress)}
	ginkgo.SynchronizedBeforeSuite(s.begin, s.join)
	ginkgo.Describe(container, s.specs)
	ginkgo.ReportAfterSuite("the report of the suite", s.conclude)
	return s, nil
}

// specs registers the selected specs. Ginkgo's own filters select the same ones again.
func (s *Suite) specs() {
	for _, p := range s.planned {
		ginkgo.It(p.Text(), ginkgo.Label(p.Labels()...), func(ctx ginkgo.SpecContext) { s.examine(ctx, p) })
	}
}

// begin locks the folder of the results and makes the first run, in the first process of Ginkgo. It returns the session for all of them.
func (s *Suite) begin(ctx ginkgo.SpecContext) []byte {
	err := s.lock()
	if err == nil {
		err = s.config.checkAccess(s.ctx, s.planned)
	}
	if err != nil {
		s.err = err
		ginkgo.Fail(err.Error())
	}
	session := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(s.begun.UnixNano(), 36)
	s.collectFor(session)
	if wanted := s.wanted(); len(wanted) > 0 {
		s.failDead(s.collector.of(ctx, wanted[0].Run)) // A subject that never starts is one failure.
	}
	return []byte(session)
}

// wanted are the specs that are not skipped, in the order of the catalog.
func (s *Suite) wanted() (wanted []Planned) {
	for _, p := range s.planned {
		if p.Skip == "" {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

// collectFor begins to collect evidence for a session, unless this process has begun.
func (s *Suite) collectFor(session string) {
	if s.collector != nil {
		return
	}
	var running context.Context
	running, s.cancel = context.WithCancel(s.ctx)
	ginkgo.DeferCleanup(s.end)
	s.config.session = session
	s.collector = newCollector(running, s.config)
}

// lock makes and locks the folder of the results. A mistake in the call leaves an earlier report as it is.
func (s *Suite) lock() (err error) {
	if err = s.config.checkKubeconfig(); err != nil {
		return err
	}
	if s.claim, err = reports.LockMany(s.config.Out, "hitless conformance"); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(s.config.Out, RunsDir), 0o755)
}

// join begins in each process. One process alone starts the runs ahead of their specs, so that no CPU waits for a spec; of several,
// each starts what its own specs need.
func (s *Suite) join(session []byte) {
	s.collectFor(string(session))
	suite, _ := ginkgo.GinkgoConfiguration()
	if suite.ParallelTotal > 1 {
		return
	}
	wanted := s.wanted()
	slices.SortFunc(wanted, func(a, b Planned) int { return strings.Compare(a.Text(), b.Text()) }) // as Ginkgo does
	for _, p := range wanted {
		s.collector.start(p.Run)
	}
}

// failDead fails the suite if the first run shows that no run can be judged.
func (s *Suite) failDead(e *Evidence, err error) {
	switch {
	case err != nil:
		s.err = err
	case e.Dead:
		s.err = &DeadError{e.Failed}
	case e.Unserved != "":
		s.err = unserved(e)
	}
	if s.err != nil {
		ginkgo.Fail(s.err.Error())
	}
}

// unserved is the error for a live cluster whose Services get no address.
func unserved(e *Evidence) error {
	return run.UsageError{Reason: fmt.Errorf("no spec was judged, because the Service of the run %s could not be reached: %s", e.Run, e.Unserved)}
}

// abort ends the suite, in all of its processes, for a reason that concerns every spec on a live cluster.
func (s *Suite) abort(err error) {
	s.err = err
	ginkgo.AbortSuite(err.Error())
}

// DeadError is a first run that ended before its first attempt: no spec was judged.
type DeadError struct{ Reason string }

// Error says what to do.
func (e *DeadError) Error() string {
	return "no spec was judged, because the first run ended before its first attempt; `hitless run quiet` shows more: " + e.Reason
}

// end stops the runs that go on.
func (s *Suite) end() {
	s.cancel()
	for _, p := range s.collector.runs {
		<-p.done
	}
}

// examine is a spec.
func (s *Suite) examine(ctx context.Context, p Planned) {
	if p.Skip != "" {
		ginkgo.Skip(p.Skip)
	}
	e, err := s.collector.of(ctx, p.Run)
	switch {
	case err != nil && s.config.live() && ctx.Err() == nil:
		s.abort(err)
	case err != nil:
		ginkgo.Fail(err.Error())
	case e.Unserved != "":
		s.abort(unserved(e))
	}
	o, err := p.judge(e, s.config.Out)
	if err != nil {
		o = outcome{State: Invalid, Reasons: []string{err.Error()}}
	}
	data, err := json.Marshal(entry{o, e})
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	ginkgo.AddReportEntry(entryName, string(data), ginkgo.ReportEntryVisibilityNever)
	s.tally.judged(p, o)
	switch o.State {
	case Passed:
	case Skipped:
		ginkgo.Skip(strings.Join(o.Reasons, "; "))
	default:
		ginkgo.Fail(o.text(p.Spec, e))
	}
}

// conclude writes the report, in the first process of Ginkgo. A shard without specs has one too: Ginkgo does not begin it.
func (s *Suite) conclude(r ginkgo.Report) {
	if len(s.planned) == 0 && !s.config.DryRun {
		if s.err = s.lock(); s.err != nil {
			ginkgo.Fail(s.err.Error())
		}
	}
	if s.claim == nil && !s.config.DryRun { // another run has the folder
		return
	}
	s.report = s.newReport(r)
	if s.claim == nil {
		return
	}
	err := errors.Join(Write(s.config.Out, s.report, s.config.Key, &r), s.claim.Close())
	if err != nil {
		s.err = err
		ginkgo.Fail(err.Error())
	}
}

// Run runs the registered specs outside of a test, where Config.Progress takes the place of Ginkgo's output. The report is that of the
// specs until an interrupt, which Ginkgo itself handles.
func (s *Suite) Run(seed int64) (*Report, error) {
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.LabelFilter, suite.FocusStrings, suite.SkipStrings = s.config.Selection.Labels, s.config.Selection.Focus, s.config.Selection.Skip
	suite.RandomSeed, suite.Timeout, suite.DryRun = seed, longest, s.config.DryRun
	formatter.ColorableStdOut = io.Discard
	failed := failure(false)
	ginkgo.RunSpecs(&failed, description, suite, reporter)
	if s.report == nil && s.err == nil {
		s.err = fmt.Errorf("ginkgo ended without a report")
	}
	return s.report, s.err
}

// longest is the wall time that a suite may take. Each run has a deadline of its own.
const longest = 24 * time.Hour

// failure is what Ginkgo tells that a suite failed.
type failure bool

// Fail is called when a spec failed.
func (f *failure) Fail() { *f = true }

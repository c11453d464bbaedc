package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
)

// RunsDir has a folder for each run, in the folder of the results.
const RunsDir = "runs"

// Evidence is what the record of a run says about the subject and about itself.
type Evidence struct {
	Run           string         `json:"run"` // name
	Folder        string         `json:"folder,omitempty"`
	HistorySha256 string         `json:"historySha256,omitempty"`
	Command       string         `json:"command,omitempty"` // repeats the run
	Subject       record.Subject `json:"subject"`
	Kernel        record.Kernel  `json:"kernel"`
	Clock         string         `json:"clock,omitempty"`
	ControlPlane  string         `json:"controlPlane,omitempty"`
	Program       string         `json:"program,omitempty"` // digest of hitless
	// Failed says why the run gave no record that can be judged; empty if it did.
	Failed string `json:"failed,omitempty"`
	// Dead says that the subject was not ready when the run ended early: no other run can be better.
	Dead bool `json:"dead,omitempty"`
	// Unfit says why this live cluster cannot make the run.
	Unfit string `json:"unfit,omitempty"`
	// Unserved says why a live cluster gave the Service no address: it gives none to the Services of other runs either.
	Unserved string `json:"unserved,omitempty"`
}

// collector makes the evidence of runs, each once, also where several processes of Ginkgo need the same. Runs begin in the order of their
// starts, so that the specs of the first ones can be judged first.
type collector struct {
	config Config
	ctx    context.Context // ends all runs
	most   int             // runs at a time

	mu      sync.Mutex
	runs    map[*Run]*pending
	waiting []*pending // runs that have not begun
	workers int        // goroutines that take runs from waiting
}

// pending is a run that was started.
type pending struct {
	run      *Run
	done     chan struct{}
	evidence *Evidence
	err      error
}

// newCollector makes a collector of as many runs at a time as this machine has CPUs and memory for. A live cluster has one at a time: runs
// would use up its quotas together, and disturb each other.
func newCollector(ctx context.Context, c Config) *collector {
	most := 1
	if !c.live() {
		most = run.AtOnce(ctx, c.options(&Run{Scenario: "quiet"})) // all scenarios need the same memory
	}
	return &collector{config: c, ctx: ctx, most: most, runs: map[*Run]*pending{}}
}

// start starts a run in the background, unless it was started.
func (c *collector) start(r *Run) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.runs[r]
	if p != nil {
		return p
	}
	p = &pending{run: r, done: make(chan struct{})}
	c.runs[r], c.waiting = p, append(c.waiting, p)
	if c.workers < c.most {
		c.workers++
		go c.work()
	}
	return p
}

// work makes runs until none waits.
func (c *collector) work() {
	for p := c.next(); p != nil; p = c.next() {
		if p.err = context.Cause(c.ctx); p.err == nil {
			p.evidence, p.err = c.collect(p.run)
		}
		close(p.done)
	}
}

// next takes the run that waits for the longest time; nil if none waits, which ends the worker.
func (c *collector) next() *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.workers--
		return nil
	}
	p := c.waiting[0]
	c.waiting = c.waiting[1:]
	return p
}

// of returns the evidence of a run, and starts it if necessary. The error is that of a context, or of the environment.
func (c *collector) of(ctx context.Context, r *Run) (*Evidence, error) {
	p := c.start(r)
	select {
	case <-p.done:
		return p.evidence, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// collect runs, or reads what another process has collected since this suite began.
func (c *collector) collect(r *Run) (*Evidence, error) {
	file := c.config.evidenceFile(r)
	lock, err := cache.Acquire(c.ctx, file+".lock", nil)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if e, err := readEvidence(file, c.config.session); e != nil || err != nil {
		return e, err
	}
	if c.config.live() { // the other processes of the suite wait too
		one, err := cache.Acquire(c.ctx, filepath.Join(c.config.Out, RunsDir, "live.lock"), nil)
		if err != nil {
			return nil, err
		}
		defer one.Close()
	}
	e, err := c.run(r)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(collected{c.config.session, e})
	if err != nil {
		return nil, fmt.Errorf("encoding the evidence of %s: %w", r.Name, err)
	}
	return e, cache.WriteFile(file, append(data, '\n'))
}

// evidenceFile is the file with the evidence of a run.
func (c Config) evidenceFile(r *Run) string { return filepath.Join(c.Out, RunsDir, r.Name+".json") }

// collected is a file with evidence. Session is the suite's: the files of earlier ones do not count.
type collected struct {
	Session  string    `json:"session"`
	Evidence *Evidence `json:"evidence"`
}

// readEvidence reads what another process of this session has collected; nil if there is nothing.
func readEvidence(file, session string) (*Evidence, error) {
	data, err := input.Read(context.Background(), file, input.TextBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the evidence of a run: %w", err)
	}
	var c collected
	if err := json.Unmarshal(data, &c); err != nil || c.Session != session {
		return nil, nil // of an earlier suite
	}
	return c.Evidence, nil
}

// run runs, and reports an early end in the evidence.
func (c *collector) run(r *Run) (*Evidence, error) {
	o := c.config.options(r)
	ready := false
	o.Progress = func(e progress.Event) {
		ready = ready || e.Kind == progress.Measurement && e.Attempts > 0
		c.config.report(r.Name, e)
	}
	result, err := c.config.Execute(c.ctx, o)
	e := &Evidence{Run: r.Name, Folder: filepath.Join(RunsDir, r.Name)}
	if result != nil {
		e.HistorySha256 = result.HistorySha256
		e.describe(result.Dir)
		if r := result.Report; r != nil && r.Verdict == analysis.Skipped {
			e.Unserved = sentence(r.Reasons)
		}
	}
	var invalid *run.InvalidError
	switch {
	case c.ctx.Err() != nil:
		return nil, context.Cause(c.ctx)
	case errors.As(err, &invalid):
		e.Failed, e.Dead = invalid.Error(), !ready
		return e, nil
	case run.FewNodes(err):
		e.Unfit = err.Error()
		return e, nil
	case err != nil:
		return nil, err
	}
	return e, nil
}

// describe adds what the head of the record says.
func (e *Evidence) describe(dir string) {
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		return // the run has reported why
	}
	e.Subject, e.Kernel, e.Clock, e.ControlPlane, e.Program, e.Command = h.Run.Subject, h.Run.Kernel, h.Run.Clock, h.Run.ControlPlane, h.Run.ProgramSha256, h.Run.Command
}

// outcome is the judgement of a spec.
type outcome struct {
	State    State                `json:"state"`
	Reasons  []string             `json:"reasons,omitempty"`
	Failures *[]analysis.Failures `json:"failures,omitempty"` // as in Result
}

// judge judges a spec by the evidence of its run. An error means that the record cannot be read.
func (s Spec) judge(e *Evidence, dir string) (outcome, error) {
	switch {
	case e.Failed != "":
		return outcome{State: Invalid, Reasons: []string{e.Failed}}, nil
	case e.Unfit != "":
		return outcome{State: Skipped, Reasons: []string{e.Unfit}}, nil
	}
	h, err := record.OpenHistory(filepath.Join(dir, e.Folder))
	if err != nil {
		return outcome{}, err
	}
	switch s.Kind {
	case Routing:
		return s.judgeCheck(h)
	case Cost:
		return s.judgeCost(h)
	}
	return s.judgeLanes(h)
}

// judgeLanes judges the lanes of a disruption by the verdict of the run. Losses and latency of its other lanes are those of other specs.
func (s Spec) judgeLanes(h *record.History) (outcome, error) {
	r, err := analysis.Build(h)
	if err != nil {
		return outcome{}, err
	}
	o, err := s.judgeReport(h, r)
	o.Failures = s.failures(r)
	return o, err
}

// failures are those of the lanes that the spec judges.
func (s Spec) failures(r *analysis.Report) *[]analysis.Failures {
	all := []analysis.Failures{}
	judged := map[string]bool{}
	for _, lane := range r.Lanes {
		judged[lane.Name] = s.judges(lane.Protocol)
	}
	for _, f := range r.Failures() {
		if judged[f.Lane] {
			all = append(all, f)
		}
	}
	return &all
}

// judgeReport judges the lanes by the report of the run.
func (s Spec) judgeReport(h *record.History, r *analysis.Report) (outcome, error) {
	budget := h.Run.Budget
	attempts, opens := 0, false
	for _, lane := range r.Lanes {
		own := s.judges(lane.Protocol)
		if own {
			attempts, opens = attempts+lane.Attempts, opens || lane.Slow != nil
		}
		switch {
		case own && s.follows:
			budget.Rules = append(budget.Rules, following(lane.Name)...)
		case own && s.instead == nil:
		case lane.Dropped+lane.Delayed > 0:
			budget.Rules = append(budget.Rules, accepting(lane.Name))
		}
	}
	if attempts == 0 && r.Verdict != analysis.Invalid {
		return outcome{State: Invalid, Reasons: []string{"the run made no attempt on the lanes " + sentence(s.lanes)}}, nil
	}
	if !opens || s.instead != nil { // only lanes that open connections have limits of latency
		budget.SlowPercent, budget.P99ExtraMs = new(100.0), new(math.MaxFloat64)
	}
	if r.Verdict == analysis.Fail {
		judged, err := analysis.Judge(h, &budget)
		if err != nil {
			return outcome{}, err
		}
		r = judged
	}
	switch {
	case r.Verdict != analysis.Pass:
	case s.instead != nil:
		return s.instead(s, h)
	case s.also != nil:
		return s.also(s, h)
	}
	return outcome{State: stateOf(r.Verdict), Reasons: r.Reasons}, nil
}

func (s Spec) judges(protocol string) bool {
	for _, lane := range s.lanes {
		if lane == protocol {
			return true
		}
	}
	return false
}

// accepting is a rule that accepts all losses of a lane.
func accepting(lane string) record.BudgetRule {
	all := 1 << 30
	return record.BudgetRule{Selector: record.Selector{Lane: lane}, Limits: record.Limits{Dropped: &all, Delayed: &all}}
}

// following are rules that accept losses of a lane that last at most followWithin, for each pod that a rolling update ends. Wrong answers are
// never accepted.
func following(lane string) (all []record.BudgetRule) {
	none, gap, outage := 0, record.Length(followWithin), record.Length(endingPods*followWithin)
	for _, class := range []record.Class{record.Misrouted, record.WrongAnswer} {
		all = append(all, record.BudgetRule{Selector: record.Selector{Lane: lane, Class: class.String()}, Limits: record.Limits{Dropped: &none}})
	}
	return append(all, record.BudgetRule{Selector: record.Selector{Lane: lane}, Limits: record.Limits{LongestGap: &gap, Outage: &outage}})
}

func stateOf(v analysis.Verdict) State {
	switch v {
	case analysis.Pass:
		return Passed
	case analysis.Fail:
		return Failed
	case analysis.Skipped:
		return Skipped
	}
	return Invalid
}

// text is the sentence of a red spec.
func (o outcome) text(s Spec, e *Evidence) string {
	text := string(o.State) + ": " + strings.Join(o.Reasons, "; ")
	if e.Command != "" {
		text += "\nrepeat it: " + e.Command
	}
	return text
}

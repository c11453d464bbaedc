// Package site has the sites of runs: a VM, namespaces of this machine's kernel (host), a live cluster, and this machine alone. Each site
// prepares a run, runs its scenario and collects the record. Package run selects the site of a call.
package site

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Site is the site of one run.
type Site interface {
	// Prepare checks that the run is possible here, locks its folder and makes what it needs. A UsageError
	// means that nothing was run; ErrDryRun ends a run that was to be described only.
	Prepare(ctx context.Context) error
	// World clears what an unfinished run left, makes the world of the scenario and runs the scenario to its end. The error says why
	// it ended early.
	World(ctx context.Context) error
	// Collect stores the record and host.json in the folder of the run, computes the report and seals the record. runErr is the error
	// of World. The results of an earlier run are replaced when there is a report.
	Collect(runErr error) (*Result, error)
	// Close removes what Prepare and World made and nothing needs any more. It is called once, also after an error of Prepare.
	Close(ctx context.Context)
}

// ErrDryRun is the error of Prepare where the call wants a description of the run only.
var ErrDryRun = errors.New("nothing was done")

// Execute runs at a site.
func Execute(ctx context.Context, s Site) (*Result, error) {
	defer s.Close(ctx)
	switch err := s.Prepare(ctx); {
	case errors.Is(err, ErrDryRun):
		return &Result{}, nil
	case err != nil:
		return nil, err
	}
	return s.Collect(s.World(ctx))
}

// Call is what each site needs to know of a run. All exported fields are set, where nothing else is said.
type Call struct {
	Scenario string
	Set      map[string]string // parameters that the call or its timeline give
	Seed     int64
	Rate     float64 // attempts per second
	Out      string  // folder of the run
	Program  string  // file of hitless, which probes and guests run

	Verb         []string // first words of the command that repeats the run
	File         string   // that follows them, as the user gave it; empty for none
	RateOption   []string // --rate of that command, where it is not the default
	BudgetFile   string   // of --budget, as the user gave it; empty for none
	SetOptions   []string // --set of that command, KEY=VALUE
	DefaultNodes int      // number of nodes that the command leaves out

	// Length is about how long the run takes by its own clock, from the baseline on; 0 where that is not known.
	Length time.Duration

	Progress func(progress.Event) // may be nil

	Budget record.Budget // that the run is judged by; it is part of the record

	Sign ed25519.PrivateKey // signs the seal of the record; nil for none

	folder *reports.Claim // from Prepare to Close
}

// report passes an event on to the caller, if it wants any.
func (c Call) report(e progress.Event) {
	if c.Progress != nil {
		c.Progress(e)
	}
}

// message reports a line of text of the host.
func (c Call) message(text string) { c.report(progress.Event{Kind: progress.Message, Text: text}) }

// verb are the first words of the command that repeats the run, with its file.
func (c Call) verb(path func(file string) string) []string {
	words := slices.Clone(c.Verb)
	if c.File != "" {
		words = append(words, record.Word(path(c.File)))
	}
	return words
}

// options are the last words of that command.
func (c Call) options(path func(file string) string) []string {
	words := slices.Clone(c.RateOption)
	if c.BudgetFile != "" {
		words = append(words, "--budget", record.Word(path(c.BudgetFile)))
	}
	for _, pair := range c.SetOptions {
		words = append(words, "--set", record.Word(pair))
	}
	return words
}

// nodesOption returns --nodes where it is not the default.
func (c Call) nodesOption(nodes int) []string {
	if nodes == c.DefaultNodes {
		return nil
	}
	return []string{"--nodes", strconv.Itoa(nodes)}
}

// Result is a run that has ended.
type Result struct {
	Dir           string
	Report        *analysis.Report // nil without a verdict
	Partial       *analysis.Report // of a run that ended early; nil where its record cannot be read
	InputsSha256  string
	HistorySha256 string
	Command       string // repeats the run
	Stopped       string // folder with the state of the kernels at LabOptions.StopAt; empty if the run did not stop
	Wall          time.Duration
	CPUTime       time.Duration // of the host, 0 if unknown
}

// Origin says where the report comes from.
func (r *Result) Origin() record.Origin {
	return record.Origin{Command: r.Command, HistorySha256: r.HistorySha256}
}

// judge computes the report of a run, seals its record, and writes both into the run's folder.
func (r *Result) judge(key ed25519.PrivateKey) (*Result, error) {
	report, origin, err := reports.Seal(r.Dir, key)
	if err != nil {
		return r, err
	}
	r.Report, r.HistorySha256, r.Command = report, origin.HistorySha256, origin.Command
	return r, nil
}

// early seals the record of a run that ended early.
func (r *Result) early(why *InvalidError, key ed25519.PrivateKey) (*Result, error) {
	err := r.sealEarly(why.Reason, key)
	return r, errors.Join(why, err)
}

// interrupted seals the record of a run that was interrupted.
func (r *Result) interrupted(runErr error, key ed25519.PrivateKey) (*Result, error) {
	return r, errors.Join(runErr, r.sealEarly(record.Interrupted, key))
}

func (r *Result) sealEarly(reason string, key ed25519.PrivateKey) error {
	partial, origin, err := reports.SealEarly(r.Dir, reason, key)
	r.Partial, r.HistorySha256, r.Command = partial, origin.HistorySha256, origin.Command
	return err
}

// unsealed computes the hash of a record that has no verdict.
func (r *Result) unsealed(err error) (*Result, error) {
	var hashErr error
	r.HistorySha256, hashErr = record.HistorySha256(r.Dir)
	return r, errors.Join(err, hashErr)
}

// UsageError is a wrong call, or an environment that cannot run it: exit code 2.
type UsageError struct{ Reason error }

// Error is the reason.
func (e UsageError) Error() string {
	if e.Reason == nil {
		return "wrong usage"
	}
	return e.Reason.Error()
}

// Unwrap returns the reason.
func (e UsageError) Unwrap() error { return e.Reason }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// InvalidError is a run whose measurement cannot be trusted, because it ended early: exit code 3.
type InvalidError struct {
	Reason  string
	Console []string // the guest's last lines
}

// Error is the reason, with the last lines of the guest's console.
func (e *InvalidError) Error() string {
	text := "the run is invalid: " + e.Reason
	if len(e.Console) > 0 {
		text += "\nthe guest's last lines:\n  " + strings.Join(e.Console, "\n  ")
	}
	return text
}

package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// Result is a run that has come to its end.
type Result struct {
	Dir           string
	Report        *reports.Report // nil without a verdict
	InputsSha256  string
	HistorySha256 string
	Looked        string // the folder with what was there when the run stopped, as StopAt says; empty when it did not
	Wall          time.Duration
	CPUTime       time.Duration // of the host, as far as it is known: what the wall time is on a machine with nothing else to do
}

// InvalidError is a run whose measurement cannot be trusted, because the guest did not come to a good end: exit code 3.
type InvalidError struct {
	Reason  string
	Console []string // the guest's last lines
}

// Error says why, with the last lines of the guest's console.
func (e *InvalidError) Error() string {
	text := "the run is invalid: " + e.Reason
	if len(e.Console) > 0 {
		text += "\nthe guest's last lines:\n  " + strings.Join(e.Console, "\n  ")
	}
	return text
}

// Run runs a plan and judges its history. A UsageError means that nothing was run; an InvalidError that the guest did not
// come to a good end. What was recorded until then stands in the folder all the same.
func Run(ctx context.Context, o Options) (*Result, error) {
	defer o.report(progress.Event{Kind: progress.End})
	if o.OpenMetrics {
		return runAndExpose(ctx, o)
	}
	if o.Live != nil {
		return runLive(ctx, o)
	}
	if err := o.fillDefaults(); err != nil {
		return nil, err
	}
	plan, spec, err := o.plan()
	if err != nil {
		return nil, err
	}
	if err := o.chooseKernel(ctx, &plan, spec); err != nil {
		return nil, err
	}
	if err := o.checkStop(plan); err != nil {
		return nil, err
	}
	if err := makeOut(&o); err != nil {
		return nil, err
	}
	if err := checkMachine(o, plan); err != nil {
		return nil, err
	}
	boot, err := o.prepare(ctx, plan, spec)
	if err != nil {
		return nil, err
	}
	if err := clearOut(o.Out); err != nil {
		return nil, err
	}
	o.message(boot.where)
	outcome, runErr := boot.start(ctx, func(region []byte) {
		if err := o.keep(plan, spec, boot, region); err != nil {
			o.message(fmt.Sprintf("the checkpoint is not kept: %v", err)) // the run goes on, and its end may yet be written
		}
	})
	if outcome == nil {
		return nil, runErr
	}
	defer outcome.Close()
	return o.collect(plan, spec, boot, outcome, runErr)
}

// collect writes what the guest left behind into the run's folder and judges it.
func (o Options) collect(plan guest.Plan, spec subject.Spec, boot *prepared, outcome *vm.Outcome, runErr error) (*Result, error) {
	// First, because a folder with results and without host.json is not taken for a run's.
	if err := writeJSON(filepath.Join(o.Out, "host.json"), o.host(boot, outcome)); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(o.Out, checkpointPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder for the history: %w", err)
	}
	defer os.RemoveAll(work)
	left, err := extract(outcome.Region, o.Out, work)
	if err != nil && runErr == nil {
		runErr = err
	}
	head := o.header(plan, spec, boot)
	if err := writeJSON(filepath.Join(work, reports.RunFile), head); err != nil {
		return nil, err
	}
	history := filepath.Join(o.Out, "history")
	if err := replaceHistory(work, history); err != nil {
		return nil, err
	}
	result := &Result{Dir: o.Out, InputsSha256: head.InputsSha256, Wall: outcome.Wall, CPUTime: outcome.CPUTime}
	if result.HistorySha256, err = reports.HistorySha256(history); err != nil {
		return nil, err
	}
	switch {
	case errors.Is(runErr, context.Canceled):
		return result, runErr
	case runErr != nil:
		return result, &InvalidError{runErr.Error(), lastLines(outcome.Console, 20)}
	case !left.trailer:
		return result, &InvalidError{earlyEnd(outcome.Console), lastLines(outcome.Console, 20)}
	case o.StopAt > 0 && left.reason == guest.Stopped:
		result.Looked = filepath.Join(o.Out, guest.LookDir(o.StopAt))
		return result, nil
	case left.reason != "":
		return result, &InvalidError{left.reason, nil}
	case guest.Unjudged(plan.Scenario):
		return result, nil
	}
	h, err := reports.OpenHistory(history)
	if err != nil {
		return result, err
	}
	result.Report, err = reports.WriteAll(o.Out, h)
	return result, err
}

// checkStop sees that a run can stop where it is to.
func (o Options) checkStop(plan guest.Plan) error {
	switch {
	case o.StopAt < 0:
		return usagef("--stop-at %s: give a time of the run, such as 35s, as its report has them", o.StopAt)
	case o.StopAt > 0 && (plan.Kernel == guest.KernelHost || o.Clock == "real"):
		return usagef("--stop-at %s needs the virtual clock, with which a run is the same each time; leave --kernel and --clock out", o.StopAt)
	}
	return nil
}

func (o Options) header(plan guest.Plan, spec subject.Spec, boot *prepared) reports.Run {
	record := scenarios.RecordMode.Of(plan.Parameters)
	if record != reports.RecordThinned {
		record = ""
	}
	return reports.Run{
		Record:        record,
		SchemaVersion: reports.HistoryVersion, Scenario: plan.Scenario, Parameters: plan.Parameters, Seed: plan.Seed,
		Kernel: boot.kernel, Clock: boot.clock,
		Subject:      reports.Subject{Name: spec.Name, Version: boot.subjectVersion, Mode: spec.Mode},
		ControlPlane: plan.ControlPlane, Nodes: nodeNames(plan.Nodes), InputsSha256: boot.inputs, Command: o.command(),
	}
}

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i+1)
	}
	return names
}

// inputsDigest is over everything that determines the history: equal inputs with an unequal history is a defect.
func inputsDigest(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// writeJSON writes a file in one step.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := cache.WriteFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// earlyEnd says why a guest's history has no end, with the kernel's own word for it when there is one.
func earlyEnd(console []string) string {
	for _, line := range console {
		if i := strings.Index(line, "Kernel panic"); i >= 0 {
			return "the guest ended before its history was complete: " + line[i:]
		}
	}
	return "the guest ended before its history was complete"
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

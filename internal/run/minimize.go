package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Failure is a run that failed. A shorter timeline reproduces it if it has a loss of one of its classes, or, where the run had no loss,
// a proxy that does not follow changes. It is the timeline.Runner for minimizing.
type Failure struct {
	Timeline *Timeline
	Options  Options  // of each trial, without its folder and timeline
	Classes  []string // of the losses, sorted; without losses notRecovered, or none
}

// notRecovered stands for the classes of a run without losses whose proxies do not follow changes.
const notRecovered = "not-recovered"

// OpenFailure reads the folder of a failed run. The options have what the folder does not have: folders of programs and caches, the
// deadline, and the subject if a file described it. Every error is a UsageError.
func OpenFailure(ctx context.Context, dir string, o Options) (*Failure, error) {
	h, err := record.OpenHistory(dir)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	r, err := analysis.Build(h)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	if r.Verdict != analysis.Fail {
		return nil, usagef("the run in %s has the verdict %s: only one that failed can be made shorter", dir, r.Verdict)
	}
	file := filepath.Join(dir, record.HistoryDir, record.TimelineFile)
	if _, err := os.Stat(file); err != nil {
		file = filepath.Join(dir, record.TimelineFile) // the folder of the history itself
	}
	line, err := ReadTimeline(ctx, file)
	if err != nil {
		return nil, err
	}
	run := h.Run
	o.ControlPlane, o.Kernel, o.Clock, o.Seed = run.ControlPlane, run.Kernel.Kind, run.Clock, run.Seed
	o.Programs = build.Programs(run.Programs)
	spec, err := subjectOf(ctx, run, o.Subject)
	if err != nil {
		return nil, err
	}
	if o.GuestKernel, err = kernelOf(run, o.GuestKernel); err != nil {
		return nil, err
	}
	o.Subject = spec.String()
	o.Set = fallbackOf(run, spec)
	return &Failure{Timeline: line, Options: o, Classes: lossClasses(r)}, nil
}

// fallbackOf is what a trial sets so that its subjects have the run's terminatingFallback. A value that the run was given is set even
// if it is the first subject's default, since it holds for the second subject too.
func fallbackOf(run record.Run, spec subject.Spec) map[string]string {
	key := scenarios.TerminatingFallback.Key
	value := run.Parameters[key]
	command, _ := record.ParseCommand(run.Command) // as far as it can be read
	given := slices.Contains(command.Set(), key+"="+value)
	if given || spec.Exec == nil && value != spec.DefaultFallback() {
		return map[string]string{key: value}
	}
	return nil
}

// Command replays a timeline as the trials do. Its files have the paths that the user gave.
func (f *Failure) Command(file string) string {
	o := f.Options
	o.Timeline, o.Nodes, o.Rate = f.Timeline, f.Timeline.Nodes, f.Timeline.Rate
	return strings.Join(append([]string{"hitless replay", record.Word(file), "--subject", record.Word(o.Subject)}, o.LabOptions.Words(o.call(), func(file string) string { return file })...), " ")
}

// kernelOf is the kernel of a run's guest. named is needed for one from files.
func kernelOf(run record.Run, named string) (string, error) {
	if named != "" || run.Kernel.Source == "" {
		return named, nil
	}
	name, _, _ := strings.Cut(run.Kernel.Source, " ")
	if !slices.Contains(vm.KernelNames(), name) {
		return "", usagef("the kernel of the run's VM was %s, which files were: name them again with --guest-kernel", run.Kernel.Source)
	}
	return name, nil
}

// subjectOf is the subject of a run. named is needed for a subject that a file described.
func subjectOf(ctx context.Context, run record.Run, named string) (subject.Spec, error) {
	if named != "" {
		spec, err := subject.Read(ctx, named)
		if err != nil {
			return spec, UsageError{Reason: err}
		}
		return spec, nil
	}
	text := run.Subject.Name
	if text == subject.KubeProxy {
		text = subject.Spec{Name: text, Version: run.Subject.Version, Mode: run.Subject.Mode, Flags: run.Subject.Flags}.String()
	}
	spec, err := subject.Read(ctx, text)
	if err != nil {
		return spec, usagef("the run's subject was %s, which a file described: name it again with --subject exec:FILE", text)
	}
	return spec, nil
}

// lossClasses returns the classes of a report's losses, or notRecovered.
func lossClasses(r *analysis.Report) (classes []string) {
	for class, n := range r.Totals.ByClass {
		if n > 0 && class != record.OK.String() && class != record.Probe.String() {
			classes = append(classes, class)
		}
	}
	if len(classes) == 0 && len(r.Recovery.Failed()) > 0 {
		return []string{notRecovered}
	}
	slices.Sort(classes)
	return classes
}

// Fails runs a timeline and reports whether it fails as the run did: by the verdict, with a loss of a class that the run had, or, where
// the run had no loss, with proxies that do not follow changes. An invalid run does not fail.
func (f *Failure) Fails(ctx context.Context, t *timeline.Timeline) (bool, error) {
	dir, err := os.MkdirTemp("", "hitless-minimize-")
	if err != nil {
		return false, fmt.Errorf("making a folder for the trial: %w", err)
	}
	defer os.RemoveAll(dir)
	o := f.Options
	o.Timeline, o.Out = &Timeline{t, f.Timeline.File}, dir
	result, err := Run(ctx, o)
	if errors.As(err, new(*InvalidError)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return f.shows(result.Report), nil
}

// shows reports whether a report shows the failure.
func (f *Failure) shows(r *analysis.Report) bool {
	return r.Verdict == analysis.Fail && slices.ContainsFunc(lossClasses(r), func(class string) bool { return slices.Contains(f.Classes, class) })
}

var _ timeline.Runner = (*Failure)(nil)

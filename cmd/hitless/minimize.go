package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/timeline"
)

func minimizeCommand() *cobra.Command {
	var o run.Options
	var out string
	cmd := &cobra.Command{
		Use:   "minimize DIR",
		Short: "Shorten the timeline of a failed run while it still fails",
		Long: `Shorten the timeline of a failed run while it still fails. Without any single step of the result it no longer fails; another,
shorter timeline may exist.

The folder needs history/timeline, which runs of interference with what=second and runs on live clusters do not write. The run's own
timeline is replayed first, and has to fail. Each trial is a run with fewer steps or less time. A trial fails if its verdict is
fail and it has a loss of a class that the run had. The best timeline so far is written to --out after each trial that makes it
shorter, and stays there when the search is interrupted.`,
		Example: `  hitless minimize out/soak/seed-3
  hitless replay out/soak/seed-3/minimized.timeline --subject kube-proxy@v1.12.2/ipvs --controlplane replay`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (failed error) {
			if out == "" {
				folder, err := record.FolderOf(args[0])
				if err != nil {
					return err
				}
				lock, err := reports.Lock(folder, "hitless minimize "+args[0])
				if err != nil {
					return err
				}
				defer func() { failed = errors.Join(failed, lock.Close()) }()
				out = filepath.Join(folder, run.MinimizedFile)
			}
			shown := newScreen(cmd.ErrOrStderr())
			o.Progress = func(e progress.Event) {
				if e.Kind == progress.Measurement || e.Kind == progress.End { // a search has too many runs for their other events
					shown.report(e)
				}
			}
			f, err := run.OpenFailure(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			if err := minimize(cmd, f.Timeline.Timeline, f, out); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "replay it with", f.Command(out))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file for the timeline (default minimized.timeline in DIR)")
	f.StringVar(&o.Subject, "subject", "", "`SUBJECT` of the run; needed only if it was exec:FILE")
	f.StringVar(&o.GuestKernel, "guest-kernel", "", "`KERNEL` of the run; needed only if it was a folder or .deb files")
	f.StringVar(&o.Binaries, "binaries", "", "folder of ready programs to use instead of building or downloading them")
	f.DurationVar(&o.Deadline, "deadline", 0, "wall time after which a trial is ended, and counts as one that does not fail")
	return cmd
}

// minimize runs the search and prints its trials. An older file stays until the timeline has failed again.
func minimize(cmd *cobra.Command, line *timeline.Timeline, r timeline.Runner, out string) error {
	if err := cache.CheckWritable(filepath.Dir(out)); err != nil {
		return fmt.Errorf("writing the timeline: %w; give another file with --out", err)
	}
	w, begin := cmd.OutOrStdout(), time.Now()
	fmt.Fprintf(w, "replaying the run's %s\n", size(line))
	fails, err := r.Fails(cmd.Context(), line)
	if err != nil {
		return err
	}
	if !fails {
		return errors.New("the run's timeline does not fail when it is replayed: the failure does not depend on its steps alone")
	}
	if err := cache.WriteFile(out, []byte(line.String())); err != nil {
		return fmt.Errorf("writing the timeline: %w; give another file with --out", err)
	}
	var write error
	best, err := timeline.Minimize(cmd.Context(), line, r, func(trial timeline.Trial) {
		does := "does not fail"
		if trial.Failed {
			does = "fails"
			write = errors.Join(write, cache.WriteFile(out, []byte(trial.Best.String())))
		}
		fmt.Fprintf(w, "trial %d, %s: %s %s; the best has %s\n", trial.Number, time.Since(begin).Round(time.Second), size(trial.Candidate), does, size(trial.Best))
	})
	fmt.Fprintf(w, "left of %s: %s, in %s\n%s", size(line), size(best), out, best)
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "interrupted: it may be shorter still")
	}
	return errors.Join(err, write)
}

// size is the number of steps of a timeline, without its end, and its length.
func size(t *timeline.Timeline) string {
	steps := "steps"
	if len(t.Steps) == 2 {
		steps = "step"
	}
	return fmt.Sprintf("%d %s in %s", len(t.Steps)-1, steps, t.Length())
}

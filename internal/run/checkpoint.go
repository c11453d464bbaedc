package run

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
)

// checkpointPrefix begins the names of folders in which a history is written until it is whole. A kill may leave one behind.
const checkpointPrefix = ".checkpoint-"

// keep writes what a guest has recorded so far into the run's folder, so that it stays whatever becomes of the rest. The
// history that stood there is replaced when the new one is whole.
func (o Options) keep(plan guest.Plan, spec subject.Spec, boot *prepared, region []byte) error {
	if err := writeJSON(filepath.Join(o.Out, "host.json"), o.host(boot, &vm.Outcome{})); err != nil {
		return err
	}
	work, err := os.MkdirTemp(o.Out, checkpointPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	history := filepath.Join(work, "history")
	if _, err := extract(region, work, history); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(history, reports.RunFile), o.header(plan, spec, boot)); err != nil {
		return err
	}
	return replaceHistory(history, filepath.Join(o.Out, "history"))
}

// replaceHistory puts the files of a history in the place of those of an older one of the same run, of which none is missing at any
// instant. Events come before attempts, as they do in a record that is being written; the run's description makes it a history.
func replaceHistory(whole, old string) error {
	if err := os.MkdirAll(old, 0o755); err != nil {
		return fmt.Errorf("making the history's folder: %w", err)
	}
	for _, name := range [...]string{reports.TimelineFile, reports.EventsFile, reports.AttemptsFile, reports.RunFile} {
		if err := cache.Replace(filepath.Join(whole, name), filepath.Join(old, name)); err != nil {
			return fmt.Errorf("replacing the history: %w", err)
		}
	}
	return nil
}

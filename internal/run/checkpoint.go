package run

import (
	"os"
	"path/filepath"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
)

// keep writes what a guest has recorded so far into the run's folder, so that it stays whatever becomes of the rest. The
// history that stood there is replaced when the new one is whole.
func (o Options) keep(plan guest.Plan, spec subject.Spec, boot *prepared, region []byte) error {
	if err := writeJSON(filepath.Join(o.Out, "host.json"), o.host(boot, &vm.Outcome{})); err != nil {
		return err
	}
	work, err := os.MkdirTemp(o.Out, ".checkpoint-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if _, err := extract(region, work); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(work, "history", reports.RunFile), o.header(plan, spec, boot)); err != nil {
		return err
	}
	history := filepath.Join(o.Out, "history")
	if err := os.RemoveAll(history); err != nil {
		return err
	}
	return os.Rename(filepath.Join(work, "history"), history)
}

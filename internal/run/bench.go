package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
)

// Bench measures the cost of proxies (see package bench), all of them in one VM, with the virtual clock unless o.Clock is real. It
// ignores Scenario, Subject and Set of the options. An error comes with the rows until then; without any the results are nil.
func Bench(ctx context.Context, o Options, what bench.Plan) (*bench.Results, error) {
	spec := what.KubeProxy() // its program is the only one that the guest has besides hitless
	o.Scenario, o.ControlPlane, o.Kernel, o.Subject = bench.Scenario, record.ControlReplay, "vm", spec.String()
	if err := o.fillDefaults(ctx); err != nil {
		return nil, err
	}
	if o.MemoryMB == 0 {
		o.MemoryMB = 2048 + what.Services[len(what.Services)-1]/5*2 // 6 GB for 10,000 Services
	}
	if o.Deadline == 0 {
		o.Deadline = 6 * time.Hour
	}
	plan := guest.Plan{Scenario: o.Scenario, Parameters: what.Parameters(), Seed: o.Seed, ControlPlane: o.ControlPlane,
		Nodes: len(what.Subjects) * len(what.Services)}
	s, err := site.NewLab(ctx, o.call(), o.LabOptions, plan, spec)
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx)
	guest, is := s.(*site.VM)
	if !is {
		return nil, usagef("a benchmark needs a VM")
	}
	if err := guest.Prepare(ctx); err != nil {
		return nil, err
	}
	err = guest.CollectFiles(guest.World(ctx))
	rows, readErr := readRows(filepath.Join(o.Out, bench.ResultFile))
	made, madeErr := record.MadeIn(os.DirFS(o.Out))
	if err = errors.Join(err, readErr, madeErr); len(rows) == 0 {
		return nil, err
	}
	return bench.NewResults(rows, guest.Header(), made), err
}

func readRows(file string) ([]bench.Row, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var rows []bench.Row
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	return rows, nil
}

package run

import (
	"context"
	"fmt"
	"runtime"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/memory"
)

// AtOnce is how many runs in a lab with any of these options this machine has CPUs and memory for at once. It is decided before the first
// run, since a VM takes its memory over minutes. The progress of the first options says where memory is the limit.
func AtOnce(ctx context.Context, all ...Options) int {
	return atOnce(ctx, runtime.NumCPU(), memory.AvailableMB(), all)
}

func atOnce(ctx context.Context, cpus, availableMB int, all []Options) int {
	needMB := 0
	for _, o := range all {
		if mb, err := o.memoryMB(ctx); err == nil { // the run reports the error
			needMB = max(needMB, mb)
		}
	}
	if needMB == 0 || availableMB/needMB >= cpus {
		return max(1, cpus)
	}
	n := max(1, availableMB/needMB)
	all[0].report(progress.Event{Kind: progress.Message, Text: fmt.Sprintf(
		"at most %d of %d runs at a time: %d MB of memory are available, and a run needs %d MB", n, cpus, availableMB, needMB)})
	return n
}

// memoryMB is the memory that a run with these options needs of this machine.
func (o Options) memoryMB(ctx context.Context) (int, error) {
	if err := o.fillDefaults(ctx); err != nil {
		return 0, err
	}
	plan, spec, err := o.plan(ctx)
	if err != nil {
		return 0, err
	}
	return site.MemoryFor(o.LabOptions, plan, spec), nil
}

//go:build linux

package guest

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/vm"
)

// heap is the size from which on the runner collects garbage.
const heap = 256 << 20

// Main runs the plan in the VM's region and writes the history there. Progress goes to standard output.
func Main() error {
	region, err := vm.OpenRegion()
	if err != nil {
		return err
	}
	// The run's time begins where its first namespace may be made. How long it takes until here depends on the size of this program, by
	// which all that follows came up to a second later after the run's full minutes, or not.
	vm.NewPacer().Next()
	return Run(context.Background(), region)
}

// HostMain is Main in namespaces of the host's kernel.
func HostMain() error {
	region, err := host.OpenRegion()
	if err != nil {
		return err
	}
	return Run(context.Background(), region)
}

// Run runs the plan that the region holds.
func Run(ctx context.Context, region []byte) error {
	// Go collects garbage every two minutes even when idle, which would be most of the work of an idle guest. The limit is far below
	// the memory of the smallest guest.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heap)
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	r := newRecorder(vm.NewFrameWriter(region), vm.GetStop(region))
	base, err := regionPlan(region)
	if err == nil {
		err = execute(ctx, base, func() (Plan, error) { return settle(base, region, r) }, r, now)
	}
	r.close(err)
	if err != nil {
		fmt.Fprintln(os.Stdout, "hitless: the run ended early:", err)
	}
	return nil
}

func regionPlan(region []byte) (Plan, error) {
	data, err := vm.GetPlan(region)
	if err != nil {
		return Plan{}, err
	}
	return readPlan(data)
}

// settle pauses the guest for a snapshot, and then reads the whole plan. The seed takes effect here: everything before is the same for
// all seeds.
func settle(base Plan, region []byte, r *recorder) (Plan, error) {
	inVM := base.Kernel != KernelHost
	if inVM {
		if err := vm.Pause(); err != nil {
			return Plan{}, err
		}
	}
	plan, err := regionPlan(region)
	if err != nil {
		return plan, err
	}
	if err := plan.follows(base); err != nil {
		return plan, err
	}
	r.settle(plan, vm.GetStop(region))
	debug.SetMemoryLimit(heap + int64(plan.Objects)*ObjectBytes/2) // more objects need a larger heap
	if inVM {
		err = vm.SeedPool(plan.Seed)
	}
	return plan, err
}

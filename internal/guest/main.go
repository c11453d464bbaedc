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

// ObjectBytes is what an object of a timeline takes in the lab, nearly all of it in the runner: it is the control plane, its
// controllers, the kubelets and the balancer.
const ObjectBytes = 100 << 10

// heap is from when on the runner collects its garbage.
const heap = 256 << 20

// Main runs the plan in the VM's region and writes the history there. Its own progress goes to standard output.
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
	// An idle program of Go collects its garbage every two minutes all the same; days of that are most of what an idle
	// guest does. The limit is far below what the smallest guest has.
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

// settle pauses the guest, so that it may be saved, and reads what it is to do from here. The seed comes in here too: what began before
// is the same for all seeds.
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
	debug.SetMemoryLimit(heap + int64(plan.Objects)*ObjectBytes/2) // or it would do nothing else but collect
	if inVM {
		err = vm.SeedPool(plan.Seed)
	}
	return plan, err
}

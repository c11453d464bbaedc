//go:build linux

package guest

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/lab/subject"
)

func checkRouting(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error {
	f, err := routing.ParseFamily(plan.Parameters[familyKey])
	if err != nil {
		return err
	}
	return onTestbed(plan, r, now, func(s subject.Config, progress func(int)) error {
		return routing.Run(ctx, routing.Config{Dir: stateDir, Family: f, Boot: bootConfig(plan), Program: Program, Subject: s, Progress: progress})
	})
}

func measureCost(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error {
	numbers, err := costNumbers(plan.Parameters)
	if err != nil {
		return err
	}
	return onTestbed(plan, r, now, func(s subject.Config, progress func(int)) error {
		return routing.RunCosts(ctx, routing.CostConfig{Dir: stateDir, Boot: bootConfig(plan), Program: Program, Subject: s, Others: numbers, Progress: progress})
	})
}

// Ask makes requests for a testbed until the process ends: see routing.Ask.
func Ask(socket string) error { return routing.Ask(socket) }

// onTestbed runs f with the subject of the plan and a function that reports its progress, and saves the logs.
func onTestbed(plan Plan, r *recorder, now func() time.Duration, f func(s subject.Config, progress func(int)) error) error {
	programs, err := plan.programs()
	if err != nil {
		return err
	}
	if plan.Kernel != KernelHost {
		if err := raiseLimits(); err != nil {
			return fmt.Errorf("raising the limits of the lab's kernel: %w", err)
		}
	}
	console := newConsole(now)
	err = f(subject.Config{Programs: programs, Recorder: r, Now: now}, func(n int) {
		console.report(progress.Event{Kind: progress.Measurement, At: now(), Counts: progress.Counts{Attempts: n}})
	})
	r.saveLogs(filepath.Join(stateDir, "logs"))
	return err
}

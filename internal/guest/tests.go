//go:build lab

package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// TestsScenario runs the Go test programs in TestsDir in the guest, for code that needs the lab's kernel. Their output goes to the
// console; nothing is recorded.
const (
	TestsScenario = "tests"
	TestsDir      = "/usr/lib/hitless-tests"
)

func init() {
	standalones[TestsScenario] = standalone{unjudged: true}
	runners[TestsScenario] = tests
}

// tests runs all programs one after the other, in the order of their names. Parameter `run` selects tests as `go test -run` does.
func tests(ctx context.Context, plan Plan, _ *recorder, _ func() time.Duration) error {
	if err := raiseLimits(); err != nil {
		return fmt.Errorf("raising the limits of the lab's kernel: %w", err)
	}
	programs, err := filepath.Glob(filepath.Join(TestsDir, "*"))
	if err != nil || len(programs) == 0 {
		return fmt.Errorf("running tests in the guest: no program in %s", TestsDir)
	}
	var failed []error
	for _, program := range programs {
		cmd := exec.CommandContext(ctx, program, "-test.v", "-test.run="+plan.Parameters["run"])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
		cmd.Env = append(os.Environ(), "HITLESS_OWN_KERNEL=1") // for tests that also run in the kernel of a machine
		if err := cmd.Run(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", filepath.Base(program), err))
		}
	}
	return errors.Join(failed...)
}

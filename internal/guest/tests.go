package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// TestsScenario runs Go test programs in the guest, for code that only a kernel like the lab's can prove. The programs
// stand in TestsDir; what they print goes to the console, and nothing to the history.
const (
	TestsScenario = "tests"
	TestsDir      = "/usr/lib/hitless-tests"
)

// tests runs the programs one after the other, in the order of their names, all to their ends. Parameter `run` chooses
// tests as `go test -run` does.
func tests(ctx context.Context, params map[string]string) error {
	programs, err := filepath.Glob(filepath.Join(TestsDir, "*"))
	if err != nil || len(programs) == 0 {
		return fmt.Errorf("running tests in the guest: no program in %s", TestsDir)
	}
	var failed []error
	for _, program := range programs {
		cmd := exec.CommandContext(ctx, program, "-test.v", "-test.run="+params["run"])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
		if err := cmd.Run(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", filepath.Base(program), err))
		}
	}
	return errors.Join(failed...)
}

// Package failing is the program that stands for one of a proxy's programs, such as iptables or nft, while it must fail. It ends before
// most of hitless comes to life, as package lab/backend/early does: a proxy may call it often.
package failing

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Word is the first argument that makes hitless a failing program. The second one is the path by which the program was called.
const Word = "failing-program"

// Status is the exit code of a failing program. iptables and ipset answer "no" with 1, which a proxy does not take for a failure; 4 is
// that of iptables when it cannot have what it needs.
const Status = 4

// callsFile has a line for each call that would have written. It is beside the directory of the program.
const callsFile = "failed"

func init() {
	if len(os.Args) > 2 && os.Args[1] == Word {
		os.Exit(fail(os.Args[2], os.Args[3:], os.Stderr))
	}
}

// fail notes the call of a program that would have written, says why it fails, and returns the exit code.
func fail(program string, args []string, stderr io.Writer) int {
	name := filepath.Base(program)
	fmt.Fprintf(stderr, "%s: hitless makes this program fail, because a step of the run blocks the proxy\n", name)
	if !writes(name, args) {
		return Status
	}
	if err := note(filepath.Join(filepath.Dir(program), "..", callsFile), strings.Join(append([]string{name}, args...), " ")); err != nil {
		fmt.Fprintf(stderr, "%s: noting the call: %v\n", name, err)
	}
	return Status
}

// note appends a line to the log. One write does not mix with those of other calls.
func note(file, call string) error {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := log.WriteString(strings.ReplaceAll(call, "\n", " ") + "\n"); err != nil {
		return err
	}
	return log.Close()
}

// Calls returns the calls that have failed and would have written, in their order, each a line. dir has the directory of the programs.
func Calls(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, callsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which calls have failed: %w", err)
	}
	return slices.Collect(strings.Lines(string(text))), nil
}

// Forget forgets the calls that have failed.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, callsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting which calls have failed: %w", err)
	}
	return nil
}

// Package failing is the program that stands for a tool of a proxy, such as iptables or nft, while the tool must fail. It ends before most of
// hitless comes to life, as package lab/backend/early does: a proxy may call it often.
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

// Word is the first argument that makes the program a failing tool. The second one is the path by which the tool was called.
const Word = "failing-tool"

// Status is the exit code of a failing tool. iptables and ipset answer "no" with 1, which a proxy does not take for a failure; 4 is that of
// iptables when it cannot have what it needs.
const Status = 4

// callsFile has a line for each call. It is beside the directory of the tool.
const callsFile = "failed"

func init() {
	if len(os.Args) > 2 && os.Args[1] == Word {
		os.Exit(fail(os.Args[2], os.Args[3:], os.Stderr))
	}
}

// fail notes the call of a tool, says why it fails, and returns the exit code.
func fail(tool string, args []string, stderr io.Writer) int {
	name := filepath.Base(tool)
	fmt.Fprintf(stderr, "%s: hitless lets this tool fail, because a step of the run blocks the proxy\n", name)
	if err := note(filepath.Join(filepath.Dir(tool), "..", callsFile), strings.Join(append([]string{name}, args...), " ")); err != nil {
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

// Calls returns the calls that have failed in their order, each a line, and forgets them. dir has the directory of the tools.
func Calls(dir string) ([]string, error) {
	file := filepath.Join(dir, callsFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which calls have failed: %w", err)
	}
	return slices.Collect(strings.Lines(string(text))), os.Remove(file)
}

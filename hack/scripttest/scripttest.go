//go:build linux

// Package scripttest runs the scripts of hack in a folder of their own, with programs that stand for those that they call.
package scripttest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Tree is a folder with scripts in hack and stand-ins in bin.
type Tree struct {
	Dir string
	t   *testing.T
}

// New copies the scripts, whose names blanks separate, and writes a shell program of each text. Scripts find the programs in the
// search path, in bin, and go also by the variable GO.
func New(t *testing.T, scripts string, programs map[string]string) Tree {
	t.Helper()
	s := Tree{t.TempDir(), t}
	from := filepath.Join(top(t), "hack")
	for name := range strings.FieldsSeq(scripts) {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		s.Write("hack/"+name, string(text))
	}
	for name, text := range programs {
		s.Program("bin/"+name, text)
	}
	return s
}

// Rows are the names of all rows of a script, as LIST=1 prints them.
func Rows(t *testing.T, script string) []string {
	t.Helper()
	code, out := New(t, "rows.sh "+script, nil).Run([]string{"LIST=1"}, script)
	if code != 0 {
		t.Fatalf("LIST=1 %s: exit code %d: %s", script, code, out)
	}
	return strings.Fields(out)
}

// top is the top of this repository, above the folder of the test.
func top(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no folder above the test has a go.mod")
	return ""
}

// Program writes a program with the text for a shell.
func (s Tree) Program(name, text string) {
	s.t.Helper()
	s.Write(name, "#!/bin/sh\n"+text)
}

// Write writes a file that may be executed.
func (s Tree) Write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		s.t.Fatal(err)
	}
}

// Read is the text of a file with DIR in the place of the folder, empty if there is none.
func (s Tree) Read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), s.Dir, "DIR")
}

// Has reports whether a file or folder is there.
func (s Tree) Has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.Dir, name))
	return err == nil
}

// Command is a call of a script in the folder, as a process group of its own. Of the variables around it has only the search path. A test in the
// background ignores interrupts, and its scripts must not.
func (s Tree) Command(ctx context.Context, variables []string, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "env", append([]string{"--default-signal=INT", filepath.Join(s.Dir, "hack", script)}, args...)...)
	bin := filepath.Join(s.Dir, "bin")
	cmd.Dir, cmd.Env = s.Dir, append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "GO=" + filepath.Join(bin, "go"), "HOME=" + s.Dir}, variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// Run runs a script, and returns its exit code and output.
func (s Tree) Run(variables []string, script string, args ...string) (code int, out string) {
	s.t.Helper()
	cmd := s.Command(s.t.Context(), variables, script, args...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s: %v: %s", script, err, text)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

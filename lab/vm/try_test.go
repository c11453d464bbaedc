package vm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// qemuScript puts a shell script in the place of QEMU, and an empty folder in that of temporary files.
func qemuScript(t *testing.T, script string) (temp string) {
	t.Helper()
	dir, temp := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, QEMU), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", temp)
	return temp
}

// empty checks that nothing is left in a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v are left: %v", entries, err)
	}
}

// The QEMU of this machine, where it has one, has the machine of a lab.
func TestThisQEMUHasTheMachine(t *testing.T) {
	if _, err := exec.LookPath(QEMU); err != nil {
		t.Skip("this machine has no QEMU, which only a lab needs")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	if err := TryQEMU(t.Context()); err != nil {
		t.Error(err)
	}
	empty(t, temp)
}

// A QEMU that lacks something is refused with its own words.
func TestQEMUThatLacksSomething(t *testing.T) {
	for script, want := range map[string]string{
		"echo \"-action: invalid option\" >&2; exit 1": "-action: invalid option",
		"exit 0": "greeting",
		"echo 'a library is missing' >&2; exit 127": "a library is missing",
	} {
		temp := qemuScript(t, script)
		if err := TryQEMU(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v", script, err)
		}
		empty(t, temp)
	}
}

func TestQEMUThatDoesNotAnswerIsEnded(t *testing.T) {
	temp := qemuScript(t, "exec sleep 300")
	ctx, cancel := context.WithCancelCause(t.Context())
	done, why := make(chan error), errors.New("enough")
	go func() { done <- TryQEMU(ctx) }()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("the error is %v", err)
	}
	empty(t, temp)
}

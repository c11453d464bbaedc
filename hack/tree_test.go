package hack_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree is a folder with scripts of hack, and with programs that stand for those that they call.
type tree struct {
	t   *testing.T
	dir string
}

// newTree has copies of the scripts, whose names blanks separate, and programs of these texts in bin and in the search path.
func newTree(t *testing.T, scripts string, programs map[string]string) tree {
	t.Helper()
	s := tree{t, t.TempDir()}
	for name := range strings.FieldsSeq(scripts) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s.write("hack/"+name, string(text))
	}
	for name, text := range programs {
		s.write("bin/"+name, "#!/bin/sh\n"+text)
	}
	return s
}

// write writes a file that may be executed.
func (s tree) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		s.t.Fatal(err)
	}
}

// read is the text of a file, empty if there is none.
func (s tree) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s tree) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, name))
	return err == nil
}

// command is a call of a script, as a process group of its own. A test that runs in the background ignores interrupts, and its scripts must not.
func (s tree) command(ctx context.Context, variables []string, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "env", append([]string{"--default-signal=INT", filepath.Join(s.dir, "hack", script)}, args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GO="+filepath.Join(s.dir, "bin", "go"), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"),
		"SUBSET=", "FORCE=", "STALE=", "RUNS=", "SHARD=", "PLAN=", "MERGE=", "CI=")
	cmd.Env = append(cmd.Env, variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs a script, and returns its exit code and output.
func (s tree) run(variables []string, script string, args ...string) (code int, out string) {
	s.t.Helper()
	cmd := s.command(s.t.Context(), variables, script, args...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s: %v: %s", script, err, text)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// waits is the text of a program that says by the pipe begun that it waits, and ends with an exit code after an interrupt. Programs that test end so.
func waits(code string) string {
	return "trap 'kill $!; echo stopped >>stopped; exit " + code + "' INT\nsleep 600 &\necho begun >begun\nwait\n"
}

// interrupted runs a script, and interrupts it when a program waits. It returns the exit code and the output.
func (s tree) interrupted(cmd *exec.Cmd, interrupt func()) (code int, out string) {
	s.t.Helper()
	if err := unix.Mkfifo(filepath.Join(s.dir, "begun"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(s.dir, "log")) // programs that are left would hold a pipe
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() { _, _ = os.ReadFile(filepath.Join(s.dir, "begun")); close(begun) }()
	go func() { _ = cmd.Wait(); close(ended) }() // the exit code is the result
	select {
	case <-begun:
		interrupt()
	case <-ended:
		s.t.Fatalf("it ended before a program waited:\n%s", s.read("log"))
	}
	<-ended
	return cmd.ProcessState.ExitCode(), s.read("log")
}

// soon ends the programs of a test that would wait for ever.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

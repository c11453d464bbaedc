package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes/watch"
)

// A watch continues after its terminal is closed, and after SIGHUP.
func TestWatchOutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	address, _ := target(t)
	out := t.TempDir()
	t.Cleanup(func() { _, _ = call(t, "watch", "stop", "--out", out) })
	terminal, shell := pseudoTerminal(t)
	c := program("watch", "start", address, "--rate", "20", "--out", out)
	c.Stdin, c.Stdout, c.Stderr = shell, shell, shell
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	shell.Close()
	terminal.Close()
	s := until(t, out, "begun", func(s watch.State) bool { return s.Phase == watch.Measuring })
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(stat, []byte(") ")) // state ppid pgrp session tty_nr, see proc(5)
	if f := strings.Fields(string(after)); f[3] != strconv.Itoa(s.Pid) || f[4] != "0" {
		t.Errorf("process %d has session %s and terminal %s, want its own session without a terminal", s.Pid, f[3], f[4])
	}
	if err := unix.Kill(s.Pid, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, out, "gone on", func(now watch.State) bool { return now.Attempts >= s.Attempts+10 })
	if r := stopped(t, out, analysis.Pass); r.Totals.Attempts < s.Attempts || r.DetectionFloor.Ms == nil {
		t.Errorf("%+v with floor %v, want at least %d attempts and a floor", r.Totals, r.DetectionFloor.Ms, s.Attempts)
	}
}

// pseudoTerminal opens a pseudoterminal (pty(7)). A process with the second end as controlling terminal loses it when the first is closed.
func pseudoTerminal(t *testing.T) (terminal, shell *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(terminal.Fd())
	n, err1 := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if shell, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return terminal, shell
}

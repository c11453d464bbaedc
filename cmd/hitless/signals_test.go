//go:build unix

package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports"
)

// A command ends in order when its terminal is lost, and when the reader of its output died before the interrupt came: Ctrl-C ends `tee` too.
func TestDeadOutputAndLostTerminalEndInOrder(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"dead output": syscall.SIGINT, "lost terminal": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			address, _ := target(t)
			out := t.TempDir()
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			cmd := program("probe", address, "--rate", "20", "--out", out)
			cmd.Stdout, cmd.Stderr = writer, writer
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			for lines := bufio.NewScanner(reader); lines.Scan() && !strings.Contains(lines.Text(), "make your change now"); {
			}
			reader.Close()
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its verdict depends on how busy the machine is
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
				t.Errorf("it was ended by %v", status.Signal())
			}
			if _, err := analysis.Read(filepath.Join(out, reports.ReportFile)); err != nil {
				t.Errorf("no report: %v", err)
			}
		})
	}
}

// A lost terminal ends nothing under nohup, which ignores SIGHUP.
func TestNohupHolds(t *testing.T) {
	address, _ := target(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$0" "$@"`, self, "probe", address, "--rate", "20", "--out", t.TempDir())
	cmd.Env = append(os.Environ(), asProgram+"=1")
	measures := make(chan struct{})
	cmd.Stderr = &watched{await: "make your change now", found: func() { close(measures) }}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
	<-measures
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Error("SIGHUP ended it")
	case <-time.After(time.Second):
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// A command that only prints ends without a message when the reader of its output has ended, as in `hitless scenarios | head -1`.
func TestListsEndQuietlyWithoutAReader(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	defer writer.Close()
	for _, args := range [][]string{{"scenarios"}, {"museum", "list"}, {"subjects"}, {"--help"}, {"version"}} {
		var stderr bytes.Buffer
		cmd := program(args...)
		cmd.Stdout, cmd.Stderr = writer, &stderr
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != exitUsage {
			t.Errorf("%s: %v", args, err)
		}
		timer.Stop()
		if stderr.Len() > 0 {
			t.Errorf("%s says %q", args, stderr.String())
		}
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
)

// The exit code tells whether the cache is intact; a repair removes what is damaged.
func TestDoctorChecksTheCache(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HITLESS_CACHE", dir)
	doctor := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := execute(append([]string{"doctor"}, args...), &out, &errs)
		return code, out.String() + errs.String()
	}
	if code, text := doctor("--cache"); code != exitPass || !strings.Contains(text, dir) {
		t.Errorf("an empty cache: %d, %s", code, text)
	}
	snapshot := filepath.Join(dir, "snapshots", "lab-key-00000000.guest")
	if err := os.MkdirAll(filepath.Dir(snapshot), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapshot, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		repair, want string
		code         int
	}{{"", "--repair", exitDamaged}, {"--repair", "removed", exitPass}, {"", dir, exitPass}} {
		code, text := doctor(strings.Fields("--cache " + step.repair)...)
		if named := strings.Contains(text, snapshot); code != step.code || !strings.Contains(text, step.want) || named != (i < 2) {
			t.Errorf("step %d: %d, %s", i, code, text)
		}
	}
	t.Setenv("HITLESS_CACHE", "/dev/null/cache")
	if code, text := doctor("--cache"); code != exitUsage || !strings.Contains(text, "/dev/null/cache") {
		t.Errorf("a cache below a file: %d, %s", code, text)
	}
}

// The exit code tells whether a lab lacks something. A note is nothing that it lacks.
func TestDoctorExitCode(t *testing.T) {
	findings := []run.Finding{{Name: "memory", State: run.Ready, Text: "9000 MB"}, {Name: "user", State: run.Note, Text: "not root"}}
	var out bytes.Buffer
	if err := writeFindings(&out, findings); err != nil || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("a machine that lacks nothing: %v, %s", err, &out)
	}
	err := writeFindings(&out, append(findings, run.Finding{Name: "virtual machine", State: run.Missing, Text: "install it"}))
	if exitCode(t.Context(), err) != exitUsage || !strings.Contains(out.String(), "missing") {
		t.Errorf("a machine without QEMU: %v, %s", err, &out)
	}
	var errs bytes.Buffer
	if code := execute([]string{"doctor", "--install", "--cache"}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "--install") {
		t.Errorf("--install for the cache: %d, %s", code, &errs)
	}
}

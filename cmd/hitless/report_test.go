package main

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// writeRun writes the history of a small run into a run's folder: 2 s of one lane at 100/s, of which 10 attempts are refused.
func writeRun(t *testing.T, dir string) {
	t.Helper()
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), record.Run{Scenario: "rollout", Seed: 1, Clock: "virtual",
		Kernel: record.Kernel{Kind: "vm", Release: "6.1.0"}, Subject: record.Subject{Name: "bundled", Version: "v1", Mode: "ipvs"},
		InputsSha256: strings.Repeat("ab", 32), Command: "hitless run rollout --seed 1"})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"baseline", "proof", "scenario", "end"} {
		w.Event(record.Event{At: time.Duration(i) * 600 * time.Millisecond, Object: name, Text: name, Body: record.Phase{}})
	}
	w.Event(record.Event{At: 1300 * time.Millisecond, Object: "roll", Text: "roll", Body: record.Step{State: record.StepEnd}})
	w.Event(record.Event{Object: "web", Text: "lane web", Body: record.Lane{Name: "web", Client: "client", Target: "203.0.113.10:80",
		Protocol: "tcp-new", Policy: "fresh", Rate: 100, Dial: 3 * time.Second, Reply: time.Second}})
	for i := range 200 {
		a := record.Attempt{Seq: uint64(i), Intended: time.Duration(i) * 10 * time.Millisecond, Class: record.OK, Total: time.Millisecond, Backend: "web-" + strconv.Itoa(i/100)}
		if a.Start = a.Intended; i >= 150 && i < 160 {
			a.Class, a.Backend = record.Refused, ""
		}
		w.Attempt(a)
		if i%20 == 19 { // several blocks
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sealRun(t, dir, nil)
}

// sealRun seals what is in the history of writeRun now.
func sealRun(t *testing.T, dir string, key ed25519.PrivateKey) {
	t.Helper()
	data, _, err := record.SealHistory(dir, record.Sealed{Verdict: "invalid", Attempts: 200, Dropped: 10}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, record.SealFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// said runs a command line and returns what it printed.
func said(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := execute(args, &out, &out); got != code {
		t.Fatalf("hitless %s: exit %d, want %d:\n%s", strings.Join(args, " "), got, code, out.String())
	}
	return out.String()
}

// A run's folder may be copied anywhere: the reports there are the same, byte for byte.
func TestReportsOfACopiedFolderAreTheSame(t *testing.T) {
	here, there := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "a far longer name ü", "run")
	writeRun(t, here)
	if err := os.CopyFS(there, os.DirFS(here)); err != nil {
		t.Fatal(err)
	}
	first := said(t, 3, "report", here)
	t.Chdir(filepath.Dir(there))
	if second := said(t, 3, "report", "./run/"); second != first || !strings.Contains(first, "10 of 200 connections dropped") {
		t.Errorf("the report of the copy differs:\n%s\n%s", first, second)
	}
	for _, name := range []string{reports.ReportFile, reports.PageFile, reports.JUnitFile, reports.SummaryFile} {
		a, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(there, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s of the copy differs (%v)", name, err)
		}
	}
}

// Of a history without a seal that ends early the report says what is missing; where nothing can be read, the error says so. With the seal
// each of them is invalid, whatever is left of it, and nothing is written.
func TestReportsOfDamagedHistories(t *testing.T) {
	budget := testfiles.Write(t, t.TempDir(), "budget.yaml", []byte("dropped: 1000\n"))
	half := func(data []byte) []byte { return data[:len(data)/2] }
	none := func([]byte) []byte { return nil }
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte
		code   int
		report bool // is written where there is no seal
		want   []string
	}{
		"half the attempts": {record.AttemptsFile, half, 3, true, []string{"INVALID", "the record of attempts is damaged after ", "intact are its attempts of the run time 0.0 s to"}},
		"no attempts":       {record.AttemptsFile, none, 3, false, []string{"INVALID", "no seal", "attempts.bin", "copy the whole folder again"}},
		"half the events":   {record.EventsFile, half, 3, true, []string{"INVALID", "the record of events is damaged after 4 events", "belong to no declared lane"}},
		"no events":         {record.EventsFile, none, 3, true, []string{"INVALID", "belong to no declared lane", `no phase "baseline"`}},
		"half of run.json":  {record.RunFile, half, 3, false, []string{"INVALID", "no seal", "run.json", "it is damaged"}},
		"another version": {record.RunFile, func(b []byte) []byte { return bytes.Replace(b, []byte(`Version": 3`), []byte(`Version": 7`), 1) },
			2, false, []string{"version 7", "version 3", "take the hitless that wrote it"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeRun(t, dir)
			file := filepath.Join(dir, "history", c.file)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, c.change(data), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"report", dir}, {"report", filepath.Join(dir, "history")}, {"report", dir, "--format", "json"}, {"minimize", dir}, {"gate", dir, "--budget", budget}} {
				if text := said(t, 3, args...); !strings.Contains(text, "INVALID") || !strings.Contains(text, c.file) {
					t.Errorf("hitless %q of a sealed record:\n%s", args, text)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, reports.ReportFile)); err == nil {
				t.Error("a changed record has a report")
			}
			if err := os.Remove(filepath.Join(dir, record.SealFile)); err != nil {
				t.Fatal(err)
			}
			text := said(t, c.code, "report", dir)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not said:\n%s", want, text)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, reports.ReportFile)); (err == nil) != c.report {
				t.Errorf("%s: %v, want %v", reports.ReportFile, err, c.report)
			}
		})
	}
}

// The other forms are printed; nothing is written, and the exit code is not the verdict's.
func TestOtherForms(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, dir)
	for format, want := range map[string]string{"terminal": "INVALID", "json": `"verdict": "invalid"`, "junit": "<testsuites>", "markdown": "## INVALID: rollout",
		"benchmark": "seed 1, is invalid", "conformance": "undecidedFeatures:\n      - rollout", "openmetrics": `hitless_dropped_total{run="`} {
		if text := said(t, 0, "report", dir, "--format", format, "--started", "2026-11-21T09:30:00Z"); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", format, want, text)
		}
	}
	if text := said(t, 0, "report", dir, "--format", "terminal", "--verbose"); !strings.Contains(text, strings.Repeat("ab", 32)) {
		t.Errorf("the long form lacks the hashes:\n%s", text)
	}
	for want, args := range map[string][]string{"host.json": {dir, "--format", "openmetrics"}, "no longer form": {dir, "--format", "json", "-v"}, "conformance": {dir, "--format", "pdf"},
		"prints one run": {dir, dir, "--format", "json"}, "given twice": {dir, dir, "--format", "openmetrics", "--started", "2026-11-21T09:30:00Z"},
		"2026-01-31": {dir, "--format", "json", "--started", "today"}, "--format": {dir, dir}} {
		if text := said(t, 2, append([]string{"report"}, args...)...); !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("something was written: %v, %v", entries, err)
	}
}

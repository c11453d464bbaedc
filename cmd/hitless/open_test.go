package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

// `hitless open` starts the named browser with the page of a run, or of a comparison where there is one.
func TestOpenStartsTheBrowser(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "browser"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", filepath.Join(dir, "browser"))
	for _, name := range []string{reports.PageFile, compare.PageFile} { // the second one comes before the first
		testfiles.Write(t, dir, name, []byte("page"))
		if text := said(t, 0, "open", dir); !strings.Contains(text, filepath.Join(dir, name)) {
			t.Errorf("hitless open says %q", text)
		}
	}
}

// Without a page, and without a browser, the error says what to do.
func TestOpenSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, dir)
	if text := said(t, 2, "open", dir); !strings.Contains(text, "`hitless report "+dir+"`") {
		t.Errorf("without a page: %q", text)
	}
	page := testfiles.Write(t, dir, reports.PageFile, []byte("page"))
	t.Setenv("BROWSER", filepath.Join(dir, "no-browser"))
	if text := said(t, 2, "open", dir); !strings.Contains(text, page) || !strings.Contains(text, "BROWSER") {
		t.Errorf("without a browser: %q", text)
	}
}

// All commands that take the folder of a run say in the same words that a folder is none, and leave nothing in it.
func TestAFolderThatIsNoRun(t *testing.T) {
	budget := testfiles.Write(t, t.TempDir(), "budget.yaml", []byte("dropped: 0\n"))
	empty := t.TempDir()
	file := testfiles.Write(t, t.TempDir(), "file", nil)
	kept := filepath.Join(t.TempDir(), "kept.json")
	for _, dir := range []string{empty, filepath.Join(empty, "none"), file} {
		var reasons []string
		for _, args := range [][]string{{"report", dir}, {"report", dir, "--format", "openmetrics"}, {"verify", dir}, {"minimize", dir}, {"open", dir}, {"gate", dir, "--budget", budget}, {"results", "keep", dir, kept}} {
			text := said(t, 2, args...)
			folder, reason, found := strings.Cut(text, "the folder of a run")
			if !found || !strings.Contains(folder, dir) {
				t.Errorf("%q: %s", args, text)
			}
			reasons = append(reasons, reason[strings.Index(reason, ": ")+1:])
		}
		if slices.Sort(reasons); len(slices.Compact(reasons)) != 1 {
			t.Errorf("%s: different reasons: %q", dir, reasons)
		}
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("%v, %v in a folder that is no run", left, err)
	}
}

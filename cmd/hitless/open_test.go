package main

import (
	"os"
	"path/filepath"
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
	if text := said(t, 2, "open", dir); !strings.Contains(text, "`hitless report "+dir+"`") {
		t.Errorf("without a page: %q", text)
	}
	page := testfiles.Write(t, dir, reports.PageFile, []byte("page"))
	t.Setenv("BROWSER", filepath.Join(dir, "no-browser"))
	if text := said(t, 2, "open", dir); !strings.Contains(text, page) || !strings.Contains(text, "BROWSER") {
		t.Errorf("without a browser: %q", text)
	}
}

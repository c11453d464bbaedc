//go:build browser

package reports

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record/recordtest"
)

// The page in Chromium, from disk: testdata/browser.js uses it by pointer and by keyboard. Whatever the console says is a
// fault; the page's policy has the browser say there what it is asked for from outside.
func TestThePageInABrowser(t *testing.T) {
	for _, name := range []string{"fail", "mixed"} {
		for _, width := range []int{1280, 500} {
			t.Run(fmt.Sprintf("%s, %d wide", name, width), func(t *testing.T) { testfiles.UseInBrowser(t, writtenPage(t, name), "browser.js", width) })
		}
	}
}

// writtenPage is the page of one of the synthetic runs.
func writtenPage(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := WriteAll(dir, recordtest.PageLabs()[name].Write(t)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, PageFile)
}

// The twin: a page that asks for something, and one with an error, are found out.
func TestTheBrowserTestSeesRequestsAndErrors(t *testing.T) {
	for _, script := range []string{`const i = document.createElement("img"); i.src = "file:///nowhere.png"; document.body.append(i)`, `nothing.here()`} {
		if _, said := testfiles.InBrowser(t, writtenPage(t, "fail"), script, 1280); said == "" {
			t.Errorf("%s: the console says nothing", script)
		}
	}
}

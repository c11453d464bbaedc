//go:build browser

package reports

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var faultsOfPage = regexp.MustCompile(`data-faults="([^"]*)"`)

// The page in Chromium, from disk: testdata/browser.js uses it by pointer and by keyboard. Whatever the console says is a
// fault; the page's policy has the browser say there what it is asked for from outside.
func TestThePageInABrowser(t *testing.T) {
	for _, name := range []string{"fail", "mixed"} {
		for _, width := range []int{1280, 500} {
			t.Run(fmt.Sprintf("%s, %d wide", name, width), func(t *testing.T) { useInBrowser(t, writtenPage(t, name), "browser.js", width) })
		}
	}
}

// The same for the page of a comparison, with testdata/compare.js.
func TestTheComparisonInABrowser(t *testing.T) {
	dir := comparedFolder(t)
	useInBrowser(t, filepath.Join(dir, ComparisonPageFile), "compare.js", 1280)
}

// useInBrowser uses a page with a script of testdata and what hand.js has for all of them, in a window of that width.
func useInBrowser(t *testing.T, file, script string, width int) {
	t.Helper()
	scripts := contents(t, "testdata", "hand.js", script)
	page, said := inBrowser(t, file, string(scripts[0])+string(scripts[1]), width)
	if said != "" {
		t.Errorf("the console says:\n%s", said)
	}
	found := faultsOfPage.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page was not used to the end:\n%s", page[:min(len(page), 500)])
	}
	var faults []string
	if err := json.Unmarshal([]byte(html.UnescapeString(found[1])), &faults); err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
}

// writtenPage is the page of one of the synthetic runs.
func writtenPage(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := WriteAll(dir, pageLabs()[name].write(t)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, PageFile)
}

// The twin: a page that asks for something, and one with an error, are found out.
func TestTheBrowserTestSeesRequestsAndErrors(t *testing.T) {
	for _, script := range []string{`const i = document.createElement("img"); i.src = "file:///nowhere.png"; document.body.append(i)`, `nothing.here()`} {
		if _, said := inBrowser(t, writtenPage(t, "fail"), script, 1280); said == "" {
			t.Errorf("%s: the console says nothing", script)
		}
	}
}

// inBrowser opens a page to which a script was added, and returns what became of it and what the console said.
func inBrowser(t *testing.T, page, script string, width int) (document, console string) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install the package chromium", err)
	}
	dir := t.TempDir()
	text := string(contents(t, filepath.Dir(page), filepath.Base(page))[0])
	text = strings.Replace(text, "<style>", `<script>window.faults = []; onerror = function (m) { faults.push(m); };</script><style>`, 1)
	text = strings.Replace(text, "</body>", "<script>"+script+"</script></body>", 1)
	file := put(t, dir, PageFile, []byte(text))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := []string{"--headless", "--disable-gpu", "--enable-logging=stderr", fmt.Sprintf("--window-size=%d,900", width), "--virtual-time-budget=2000", "--user-data-dir=" + filepath.Join(dir, "profile"), "--dump-dom"}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	cmd := exec.CommandContext(ctx, browser, append(args, "file://"+file)...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			console += line
		}
	}
	return out.String(), console
}

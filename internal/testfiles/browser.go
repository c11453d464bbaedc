//go:build browser

package testfiles

import (
	"bytes"
	"context"
	_ "embed"
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

//go:embed hand.js
var handScript string

var faultsOfPage = regexp.MustCompile(`data-faults="([^"]*)"`)

// UseInBrowser runs hand.js and a script of the package's testdata in a page, in a window of that width in pixels. Each entry of
// the page's attribute data-faults, and each message on the console, fails the test.
func UseInBrowser(t *testing.T, file, script string, width int) {
	t.Helper()
	page, said := InBrowser(t, file, handScript+string(Read(t, "testdata", script)[0]), width)
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

// InBrowser opens a page with an added script in headless Chromium. It returns the document afterwards and the console messages.
func InBrowser(t *testing.T, page, script string, width int) (document, console string) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install the package chromium", err)
	}
	dir := t.TempDir()
	text := string(Read(t, filepath.Dir(page), filepath.Base(page))[0])
	text = strings.Replace(text, "<style>", `<script>window.faults = []; onerror = function (m) { faults.push(m); };</script><style>`, 1)
	text = strings.Replace(text, "</body>", "<script>"+script+"</script></body>", 1)
	file := Write(t, dir, "page.html", []byte(text))
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

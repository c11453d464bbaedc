//go:build browser

package testfiles

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
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
	UseWith(t, file, script, width, nil)
}

// UseWith is UseInBrowser with data for the script, as JSON in the element #expected.
func UseWith(t *testing.T, file, script string, width int, expected any) {
	t.Helper()
	data, err := json.Marshal(expected)
	if err != nil {
		t.Fatal(err)
	}
	given := fmt.Sprintf("{const e = document.createElement('template'); e.id = 'expected'; e.textContent = %q; document.head.append(e);}\n", data)
	page, said := InBrowser(t, file, given+handScript+string(Read(t, "testdata", script)[0]), width)
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
	dir := t.TempDir()
	text := string(Read(t, filepath.Dir(page), filepath.Base(page))[0])
	text = strings.Replace(text, "<style>", `<script>window.faults = []; onerror = function (m) { faults.push(m); };</script><style>`, 1)
	text = strings.Replace(text, "</body>", "<script>"+script+"</script></body>", 1)
	file := Write(t, dir, "page.html", []byte(text))
	out, log := chromium(t, dir, fmt.Sprintf("--window-size=%d,900", width), "--virtual-time-budget=20000", "--dump-dom", "file://"+file)
	for line := range strings.Lines(log) {
		if strings.Contains(line, "CONSOLE") {
			console += line
		}
	}
	return out, console
}

var axeFile = flag.String("axe", "", "axe.min.js of the npm package axe-core, which checks that pages are accessible; `make browser` names it")

// Accessible fails the test for each serious or critical finding of axe in a page, with all of its parts open.
func Accessible(t *testing.T, page string) {
	t.Helper()
	for _, f := range AxeFindings(t, page) {
		t.Error(f)
	}
}

// AxeFindings are the serious and critical findings of axe in a page, with all of its parts open. Each begins with the name of its rule.
func AxeFindings(t *testing.T, page string) (faults []string) {
	t.Helper()
	if *axeFile == "" {
		t.Fatal("axe needs -axe=FILE; `make browser` fetches axe.min.js and names it")
	}
	axe := strings.ReplaceAll(string(Read(t, filepath.Dir(*axeFile), filepath.Base(*axeFile))[0]), "</script", `<\/script`)
	said, _ := InBrowser(t, page, axe+`;document.querySelectorAll("details").forEach(function (d) { d.open = true; });
axe.run({resultTypes: ["violations"]}).then(function (r) {
  document.documentElement.setAttribute("data-faults", JSON.stringify(r.violations.filter(function (v) { return v.impact === "serious" || v.impact === "critical"; })
    .map(function (v) { return v.id + ": " + v.help + ": " + v.nodes[0].html.slice(0, 200); })));
});`, 1280)
	found := faultsOfPage.FindStringSubmatch(said)
	if found == nil {
		t.Fatal("axe did not end")
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(found[1])), &faults); err != nil {
		t.Fatal(err)
	}
	return faults
}

// PrintedPages is the number of pages that a print of a page takes.
func PrintedPages(t *testing.T, page string) int {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.pdf")
	chromium(t, dir, "--no-pdf-header-footer", "--print-to-pdf="+file, "file://"+page)
	return len(pageOfPDF.FindAll(Read(t, dir, "page.pdf")[0], -1))
}

var pageOfPDF = regexp.MustCompile(`/Type\s*/Page\b`)

// chromium runs a headless browser with a profile in dir.
func chromium(t *testing.T, dir string, args ...string) (out, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromiumPath(t), append(ownArgs(filepath.Join(dir, "profile")), args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

func chromiumPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install the package chromium", err)
	}
	return path
}

// ownArgs are the flags of each headless browser.
func ownArgs(profile string) []string {
	args := []string{"--headless", "--disable-gpu", "--enable-logging=stderr", "--user-data-dir=" + profile}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	return args
}

//go:build browser

package reports

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record/recordtest"
)

// The page in Chromium, from disk: testdata/browser.js uses it by pointer and by keyboard. Whatever the console says is a
// fault; the page's policy has the browser say there what it is asked for from outside.
func TestThePageInABrowser(t *testing.T) {
	for _, name := range []string{"fail", "mixed"} {
		for _, width := range []int{1280, 500, 375} {
			t.Run(fmt.Sprintf("%s, %d wide", name, width), func(t *testing.T) {
				file := writtenPage(t, name)
				testfiles.UseWith(t, file, "browser.js", width, expectedOf(t, name, file))
			})
		}
	}
}

// expectedOf is what the page must show of the report.json beside it.
func expectedOf(t *testing.T, name, file string) map[string]any {
	t.Helper()
	r, err := analysis.Read(filepath.Join(filepath.Dir(file), ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	_, _, origin := built(t, recordtest.PageLabs()[name])
	outages, edges := r.AllOutages(), []int{}
	slices.SortStableFunc(outages, func(a, b analysis.LaneOutage) int { return cmp.Compare(a.From, b.From) })
	for _, o := range outages {
		edges = append(edges, len(o.Edges))
	}
	return map[string]any{"outages": len(outages), "groups": len(r.Causes()), "headline": r.Headline(), "edges": edges, "command": origin.Command, "history": origin.HistorySha256}
}

// Two outages take at most four printed pages.
func TestTheBrowserPrintsFewPages(t *testing.T) {
	if n := testfiles.PrintedPages(t, writtenPage(t, "fail")); n < 1 || n > 4 {
		t.Errorf("two outages take %d printed pages", n)
	}
}

// The fullest page, whose size does not grow with its attempts, and the page of a day with 240 outages load within a second.
// The bound is on CPU time: with a CPU for itself, a page from disk takes no longer.
func TestTheBrowserLoadsLongRunsWithinASecond(t *testing.T) {
	for name, s := range map[string]*recordtest.Lab{"full": fullLab(), "soak": longSoak(24*time.Hour, 240, 1)} {
		_, html := pageFrom(t, s.Write(t))
		took := testfiles.LoadTime(t, testfiles.Write(t, t.TempDir(), name+".html", []byte(html)))
		if took > time.Second {
			t.Errorf("the page %q takes %v", name, took)
		}
	}
}

// axe finds nothing serious in the page of a failed and of a passed run.
func TestTheBrowserFindsThePageAccessible(t *testing.T) {
	for _, name := range []string{"fail", "pass"} {
		testfiles.Accessible(t, writtenPage(t, name))
	}
}

// The twin: axe finds an image and an input without a name.
func TestTheBrowserFindsAnInaccessiblePage(t *testing.T) {
	page := testfiles.Write(t, t.TempDir(), "page.html", []byte(`<!doctype html><html lang="en"><head><title>page</title><style></style></head>
<body><main><h1>page</h1><img src="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"><input></main></body></html>`))
	found := testfiles.AxeFindings(t, page)
	for _, rule := range []string{"image-alt", "label"} {
		if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, rule+": ") }) {
			t.Errorf("axe finds %q, and nothing by its rule %s", found, rule)
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

// The twin: work of a script counts.
func TestTheBrowserTestSeesASlowPage(t *testing.T) {
	page := func(script string) string {
		return testfiles.Write(t, t.TempDir(), "page.html", []byte("<!doctype html><title>page</title><script>"+script+"</script>"))
	}
	idle, busy := testfiles.LoadTime(t, page("")), testfiles.LoadTime(t, page("let n = 0; for (let i = 0; i < 2e8; i++) n = (n * 31 + i) % 1000003; document.title = n"))
	if busy < idle+100*time.Millisecond {
		t.Errorf("a page takes %v, with much to compute %v", idle, busy)
	}
}

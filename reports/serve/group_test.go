package serve

import (
	"html"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports"
)

// Runs are in one group only when the control plane, the kernel, the program and the settings are the same.
func TestRunsAreGroupedByWhatIsTheSame(t *testing.T) {
	base := run{Title: "rollout", Verdict: analysis.Pass, Made: madeText(analysis.ReportRun{ControlPlane: "kube", Kernel: record.Kernel{Kind: "vm", Release: "6.1"}, ProgramSha256: "aaaa"})}
	runs := []run{base, base}
	for _, other := range []analysis.ReportRun{{ControlPlane: "replay", Kernel: record.Kernel{Kind: "vm", Release: "6.1"}, ProgramSha256: "aaaa"},
		{ControlPlane: "kube", Kernel: record.Kernel{Kind: "vm", Release: "6.12"}, ProgramSha256: "aaaa"}, {ControlPlane: "kube", Kernel: record.Kernel{Kind: "vm", Release: "6.1"}, ProgramSha256: "bbbb"}} {
		r := base
		r.Made = madeText(other)
		runs = append(runs, r)
	}
	title := base
	title.Title = "rollout replicas=2"
	groups := trends(append(runs, title))
	if len(groups) != 5 {
		t.Fatalf("%d groups, want 5: %+v", len(groups), groups)
	}
	for _, g := range groups {
		if want := map[bool]int{true: 2, false: 1}[g.Title == "rollout" && g.Made == base.Made]; g.Rows[0].Runs != want {
			t.Errorf("%s, %s has %d runs", g.Title, g.Made, g.Rows[0].Runs)
		}
	}
}

// Runs with other settings are not alike.
func TestRunsWithOtherSettingsAreInOtherGroups(t *testing.T) {
	root := t.TempDir()
	aRun{"a", "v1", analysis.Pass, 0, 0}.write(t, root)
	aRun{"b", "v1", analysis.Pass, 0, 0}.command(t, root, "hitless run rollout --set replicas=2 --rate 50")
	page := html.UnescapeString(ask(open(t, root, true), "GET", "/", "localhost").Body.String())
	if !strings.Contains(page, "<h3>rollout replicas=2</h3>") || !strings.Contains(page, "<h3>rollout replicas=2 --rate 50</h3>") {
		t.Errorf("runs with other rates are one group:\n%s", page)
	}
}

// A search keeps the runs that have all of its words, and each group names its latest run.
func TestTheListCanBeSearched(t *testing.T) {
	root := t.TempDir()
	for _, a := range []aRun{{"one", "v1.25.3", analysis.Fail, 40, 0}, {"two", "v1.26.0", analysis.Pass, 0, 1}} {
		a.write(t, root)
	}
	h := open(t, root, true)
	for query, want := range map[string][2]bool{"": {true, true}, "v1.26": {false, true}, "FAIL rollout": {true, false}, "<b>": {false, false}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = "localhost"
		values := r.URL.Query()
		values.Set("q", query)
		r.URL.RawQuery = values.Encode()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		page := w.Body.String()
		for i, path := range []string{"one", "two"} {
			if found := strings.Contains(page, `href="/run/`+path+`/report.html"`); found != want[i] {
				t.Errorf("search %q: run %s is shown: %v", query, path, found)
			}
		}
		if strings.Contains(page, "<b>") {
			t.Error("a search became markup")
		}
		if query == "" && !strings.Contains(html.UnescapeString(page), `The <a href="/run/two/report.html">latest run</a>`) {
			t.Error("the group does not name its latest run")
		}
	}
}

// A run that was interrupted is in the list, and says so.
func TestAnInterruptedRunIsListed(t *testing.T) {
	o := recordtest.Failing()
	dir := filepath.Dir(o.Start(o.Lab()).Write(t).Dir())
	if _, _, err := reports.SealEarly(dir, record.Interrupted, nil); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "cut"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	h := open(t, root, true)
	page := html.UnescapeString(ask(h, "GET", "/", "localhost").Body.String())
	if !strings.Contains(page, `href="/run/cut/report.html"`) || !strings.Contains(page, "INTERRUPTED at +") || strings.Contains(page, "Not shown") {
		t.Errorf("the list:\n%s", page)
	}
	if w := ask(h, "GET", "/run/cut/report.html", "localhost"); w.Code != 200 {
		t.Errorf("its page: %d", w.Code)
	}
}

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports"
)

var firstDay = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// aRun is the data of a run's folder.
type aRun struct {
	dir, version string
	verdict      analysis.Verdict
	dropped, day int
}

func (a aRun) write(t *testing.T, root string) {
	t.Helper()
	a.command(t, root, "hitless run rollout --set replicas=2")
}

// command is write, for the run of a command.
func (a aRun) command(t *testing.T, root, command string) {
	t.Helper()
	dir := filepath.Join(root, a.dir)
	if err := os.MkdirAll(filepath.Join(dir, "history"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := analysis.Report{SchemaVersion: analysis.Version, Verdict: a.verdict, Subject: record.Subject{Name: "kube-proxy", Version: a.version, Mode: "nftables"},
		Run: analysis.ReportRun{Scenario: "rollout", Seed: 3}, Totals: analysis.Totals{Attempts: 4711, Dropped: a.dropped}}
	var b bytes.Buffer
	if err := analysis.WriteJSON(&b, &r); err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(record.Run{SchemaVersion: record.HistoryVersion, Command: command})
	if err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf(`{"started":%q}`, firstDay.AddDate(0, 0, a.day).Format(time.RFC3339))
	put(t, filepath.Join(dir, "history/events.ndjson"), "")
	for name, data := range map[string]string{reports.ReportFile: b.String(), reports.PageFile: "<p>page of " + a.dir, "history/run.json": string(head),
		reports.HostFile: host, "history/attempts.bin": "secret", "other.html": "secret"} {
		put(t, filepath.Join(dir, name), data)
	}
	seal, _, err := record.SealHistory(dir, r.Sealed(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, record.SealFile), string(seal))
}

func put(t *testing.T, file, data string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, loopback bool) *Handler {
	t.Helper()
	h, err := Open(dir, loopback, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// ask sends a request without a client's cleaning of the path.
func ask(h http.Handler, method, target, host string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	r.URL.Path, r.Host = target, host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestTheListHasEachRunAndTheTrendEachVersion(t *testing.T) {
	root := t.TempDir()
	for _, a := range []aRun{{"a", "v1.25.3", analysis.Fail, 40, 0}, {"b/seed-1", "v1.25.3", analysis.Fail, 60, 1}, {"b/seed 2?", "v1.25.3", analysis.Invalid, 9999, 2},
		{"c", "v1.26.0", analysis.Pass, 0, 3}, {"d", "<b>v2", analysis.Skipped, 0, 4}} {
		a.write(t, root)
	}
	h := open(t, root, true)
	w := ask(h, "GET", "/", "localhost:1")
	page := html.UnescapeString(w.Body.String())
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	for _, want := range []string{"<title>hitless: 5 runs", "rollout replicas=2", "2026-11-05 12:00", `2 fail, 1 invalid</td><td class="n">50</td><td class="n">60`,
		`1 pass</td><td class="n">0</td><td class="n">0`, `1 skipped</td><td class="n">–`, `href="/run/b/seed%202%3F/report.html"`, "2026-11-01</td>", `a class="invalid c0"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	if strings.Contains(w.Body.String(), "<b>v2") {
		t.Error("a version became markup")
	}
	if found := regexp.MustCompile(`(?i)(https?:|src=|@import|url\(|<script)`).FindString(w.Body.String()); found != "" {
		t.Errorf("the list asks for something: %s", found)
	}
	if order := regexp.MustCompile(`>(a|b/seed-1|b/seed 2\?|c|d)</a>`).FindAllString(page, -1); strings.Join(order, "") != ">d</a>>c</a>>b/seed 2?</a>>b/seed-1</a>>a</a>" {
		t.Errorf("the latest is not the first: %v", order)
	}
	if got := ask(h, "GET", "/run/b/seed 2?/report.html", "localhost:1"); got.Code != 200 || got.Body.String() != "<p>page of b/seed 2?" {
		t.Errorf("the page of a run: %d %s", got.Code, got.Body)
	}
	if got := ask(h, "HEAD", "/run/a/report.json", "localhost:1"); got.Code != 200 || got.Body.Len() != 0 || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v %s", got.Code, got.Header(), got.Body)
	}
}

// Wide tables scroll with the keys too, and each row has a head.
func TestTheListIsReachableByKeys(t *testing.T) {
	root := t.TempDir()
	for i, dropped := range []int{0, 1} {
		aRun{fmt.Sprint(i), "v1", analysis.Fail, dropped, i}.write(t, root)
	}
	page := ask(open(t, root, true), "GET", "/", "localhost").Body.String()
	if all := strings.Count(page, `class="scroll"`); all != 3 || strings.Count(page, `class="scroll" tabindex="0" role="group" aria-label`) != all {
		t.Errorf("%d parts scroll, not all of them with the keys:\n%s", all, page)
	}
	if strings.Count(page, `<th scope="row">`) != 3 {
		t.Errorf("not each row has a head:\n%s", page)
	}
	if !strings.Contains(page, `<td class="n">0.5</td><td class="n">1</td>`) {
		t.Errorf("the median of 0 and 1 is not 0.5:\n%s", page)
	}
}

func TestNewAndBrokenRunsAreSeenAtTheNextRequest(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, true)
	if page := ask(h, "GET", "/", "[::1]:1").Body.String(); !strings.Contains(page, "No run was found") {
		t.Errorf("an empty folder:\n%s", page)
	}
	aRun{"a", "v1", analysis.Pass, 0, 0}.write(t, root)
	aRun{"z", "v1", analysis.Pass, 0, 0}.write(t, root)
	put(t, filepath.Join(root, "z", reports.ReportFile), `{"schemaVersion":`)
	page := ask(h, "GET", "/", "127.0.0.1").Body.String()
	if !strings.Contains(page, "<title>hitless: 1 run</title>") || !strings.Contains(page, "Not shown: reading the report z/report.json") {
		t.Errorf("one good and one broken run:\n%s", page)
	}
	changed := aRun{"a", "v77.1", analysis.Fail, 12345, 0}
	changed.write(t, root)
	if page := ask(h, "GET", "/", "127.0.0.1").Body.String(); !strings.Contains(page, "v77.1") || !strings.Contains(page, "12345") {
		t.Error("a run that was made again is shown as before")
	}
}

// A run whose record or report was changed is named and not shown. The twin: the same runs unchanged are shown.
func TestRunsThatWereChangedAreNotShown(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"record", "report", "seal", "whole"} {
		aRun{dir, "v1", analysis.Fail, 7, 0}.write(t, root)
	}
	h := open(t, root, true)
	if page := ask(h, "GET", "/", "localhost").Body.String(); !strings.Contains(page, "hitless: 4 runs") {
		t.Fatalf("unchanged runs:\n%s", page)
	}
	put(t, filepath.Join(root, "record", record.HistoryDir, record.AttemptsFile), "secreT")
	report := filepath.Join(root, "report", reports.ReportFile)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	put(t, report, strings.Replace(string(text), `"fail"`, `"pass"`, 1))
	if err := os.Remove(filepath.Join(root, "seal", record.SealFile)); err != nil {
		t.Fatal(err)
	}
	page := html.UnescapeString(ask(h, "GET", "/", "localhost").Body.String())
	if !strings.Contains(page, "<title>hitless: 1 run</title>") || strings.Count(page, "Not shown: INVALID") != 3 {
		t.Errorf("three changed runs of four:\n%s", page)
	}
	for dir, code := range map[string]int{"record": 409, "report": 409, "seal": 409, "whole": 200} {
		if w := ask(h, "GET", "/run/"+dir+"/report.html", "localhost"); w.Code != code {
			t.Errorf("the page of %s: %d, want %d", dir, w.Code, code)
		}
	}
}

func TestNothingButReportsOfRunsIsServed(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "runs")
	aRun{"a", "v1", analysis.Pass, 0, 0}.write(t, root)
	aRun{"elsewhere", "v1", analysis.Pass, 0, 0}.write(t, outside)
	put(t, filepath.Join(outside, reports.PageFile), "secret")
	put(t, filepath.Join(outside, reports.ReportFile), "secret")
	put(t, filepath.Join(root, reports.PageFile), "secret") // beside no report.json
	if err := os.Mkdir(filepath.Join(root, "a", "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"a/logs/out.log": filepath.Join(outside, reports.PageFile), "a/logs/up": "..", "link": filepath.Join(outside, "elsewhere"), "up": "..", "a/" + reports.SummaryFile: filepath.Join(outside, reports.PageFile),
		"a/" + reports.JUnitFile: "../../" + reports.PageFile} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	h := open(t, root, true)
	for _, target := range []string{"/run/../report.html", "/run/../elsewhere/report.html", "/run/a/../../report.html", "/run/a/../a/report.html", "/run//etc/passwd",
		"/run/" + outside + "/report.html", "/run/link/report.html", "/run/up/report.html", "/run/a/summary.md", "/run/a/junit.xml", "/run/a/history/attempts.bin",
		"/run/a/host.json", "/run/a/other.html", "/run/a/", "/run/a", "/run/", "/run", "/a/report.html", "/favicon.ico", "", "/run/report.html", "/run/a\x00/report.html",
		"/run/a/report.html/", "/run/a/..%2freport.html", "/run/a/logs/none.log", "/run/a/logs/../host.json", "/run/a/../a/logs/", "/run/a/logs//", "/run/a/logs/up/other.html",
		"/run/a/logs/out.log", "/run/a/logs", "/run/logs/", "/run/a/history/logs/", `/run/a\..\..\report.html`} {
		if w := ask(h, "GET", target, "localhost"); w.Code != 404 || strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "page of") {
			t.Errorf("%q was answered with %d %s", target, w.Code, w.Body)
		}
	}
	if page := ask(h, "GET", "/", "localhost").Body.String(); strings.Contains(page, "elsewhere") || !strings.Contains(page, "<title>hitless: 1 run</title>") {
		t.Errorf("the list follows links:\n%s", page)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if w := ask(h, method, "/run/a/report.html", "localhost"); w.Code != 405 || strings.Contains(w.Body.String(), "page of") {
			t.Errorf("%s was answered with %d", method, w.Code)
		}
	}
}

// Each file that the page links to exists in the folder of the run, and the server serves it. The page of a run without a cluster and
// that of a watch do not link to logs, because they have none.
func TestTheLinksOfThePageLeadSomewhere(t *testing.T) {
	for name, nodes := range map[string][]string{"lab": {"node-1", "node-2"}, "logs": nil, "watch": {"node-1", "node-2"}} {
		s := recordtest.PageLabs()["fail"]
		s.Run.Nodes = nodes
		if name == "watch" {
			s.Run.Scenario = name
		}
		root := t.TempDir()
		dir := filepath.Join(root, name)
		if err := os.Rename(filepath.Dir(s.Write(t).Dir()), dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := reports.Seal(dir, nil); err != nil {
			t.Fatal(err)
		}
		kept := name == "lab"
		if kept {
			if err := os.Mkdir(filepath.Join(dir, "logs"), 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, "logs", "proxy <1>.log"), "it says <b>\n")
		}
		h := open(t, root, true)
		page := ask(h, "GET", "/run/"+name+"/report.html", "localhost").Body.String()
		links := regexp.MustCompile(`href="([^"#][^":]*)"`).FindAllStringSubmatch(page, -1)
		if len(links) < 3 || strings.Contains(page, `href="logs/"`) != kept {
			t.Errorf("%s: the page links to %q", name, links)
		}
		for _, l := range links {
			if _, err := os.Stat(filepath.Join(dir, l[1])); err != nil {
				t.Error(err)
			}
			if w := ask(h, "GET", "/run/"+name+"/"+l[1], "localhost"); w.Code != 200 || w.Body.Len() == 0 {
				t.Errorf("%s is answered with %d", l[1], w.Code)
			}
		}
	}
}

// The logs of a run are a list, and each is served as text.
func TestLogsAreServedAsText(t *testing.T) {
	root := t.TempDir()
	aRun{"a", "v1", analysis.Fail, 7, 0}.write(t, root)
	if err := os.Mkdir(filepath.Join(root, "a", "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "a", "logs", "proxy <1>.log"), "it says <b>\n")
	h := open(t, root, true)
	if list := ask(h, "GET", "/run/a/logs/", "localhost").Body.String(); !strings.Contains(list, `<a href="/run/a/logs/proxy%20%3C1%3E.log">proxy &lt;1&gt;.log</a>`) {
		t.Errorf("the list of logs is\n%s", list)
	}
	w := ask(h, "GET", "/run/a/logs/proxy <1>.log", "localhost")
	if w.Code != 200 || w.Body.String() != "it says <b>\n" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("a log is answered with %d, %v and %q", w.Code, w.Header(), w.Body)
	}
}

// A site whose name resolves to this address (DNS rebinding) must not read the runs.
func TestOnlyLoopbackNamesAreAnsweredOnLoopback(t *testing.T) {
	root := t.TempDir()
	aRun{"a", "v1", analysis.Pass, 0, 0}.write(t, root)
	for host, code := range map[string]int{"localhost:7788": 200, "127.0.0.1:7788": 200, "127.0.0.1": 200, "[::1]:7788": 200, "[::1]": 200, "evil.example:7788": 403,
		"localhost.evil.example": 403, "10.0.0.1:7788": 403, "": 403} {
		if w := ask(open(t, root, true), "GET", "/", host); w.Code != code {
			t.Errorf("%q: %d, want %d", host, w.Code, code)
		}
		if w := ask(open(t, root, false), "GET", "/", host); w.Code != 200 {
			t.Errorf("%q: %d where every address is served", host, w.Code)
		}
	}
}

func TestAFolderThatIsNotThere(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), true, nil); err == nil || !strings.Contains(err.Error(), "give a folder with runs") {
		t.Errorf("%v", err)
	}
}

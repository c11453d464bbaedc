package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// historyOf writes a museum.json with these texts in its list.
func historyOf(t *testing.T, bugs ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "museum.json")
	if err := os.WriteFile(file, []byte("["+strings.Join(bugs, ",")+"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	seenBug = `{"id": "k8s-85643", "title": "a rollout", "subject": "bundled", "seed": 1, "answer": "seen", "reasons": ["an outage of 5 s"]}`
	noBug   = `{"id": "k8s-71515", "title": "a flap", "subject": "bundled", "seed": 1, "answer": "does not apply", "reasons": ["another mode"]}`
)

// The bugs of the museum stand in the report, which keeps its schema, and on the page. They turn no spec red.
func TestTheReportHasTheHistory(t *testing.T) {
	dir, output, failed := suite(t, "none", "-ginkgo.label-filter=drain", "-history="+historyOf(t, seenBug, noBug))
	if failed {
		t.Fatal(output)
	}
	r := readReport(t, dir)
	if len(r.History) != 2 || r.History[0].ID != "k8s-85643" || r.History[0].Answer != "seen" || r.ExitCode() != 0 {
		t.Errorf("%+v, exit code %d", r.History, r.ExitCode())
	}
	page, err := os.ReadFile(filepath.Join(dir, PageFile))
	if err != nil || !strings.Contains(string(page), "2 historical bugs: 1 seen, 0 not seen, 0 cannot tell, 1 do not apply") {
		t.Errorf("the page lacks the history (%v)", err)
	}
}

// A history that is none of this subject is an error before anything runs.
func TestAHistoryOfSomethingElseIsAnError(t *testing.T) {
	for name, file := range map[string]string{
		"another subject": historyOf(t, strings.Replace(seenBug, "bundled", "kube-proxy@v1.37.1/ipvs", 1)),
		"an unknown bug":  historyOf(t, strings.Replace(seenBug, "85643", "1", 1)),
		"another answer":  historyOf(t, strings.Replace(seenBug, `"seen"`, `"perhaps"`, 1)),
		"twice":           historyOf(t, seenBug, seenBug),
		"no bug":          historyOf(t),
		"an unknown key":  historyOf(t, strings.Replace(seenBug, "title", "name", 1)),
		"no list":         historyOf(t, seenBug+"] []"),
		"no file":         filepath.Join(t.TempDir(), "none.json"),
	} {
		if bugs, err := ReadHistory(t.Context(), file, "bundled"); err == nil {
			t.Errorf("%s: %+v", name, bugs)
		}
	}
	if bugs, err := ReadHistory(t.Context(), historyOf(t, seenBug, noBug), "bundled"); err != nil || len(bugs) != 2 {
		t.Errorf("%+v: %v", bugs, err)
	}
}

// The matrix has a row for each bug that a subject has, and none for the others.
func TestTheMatrixHasTheBugsThatWereSeen(t *testing.T) {
	old, new := reportOf("old", "v1.25.3", nil), reportOf("new", "v1.26.0", nil)
	old.History = []Bug{{ID: "k8s-85643", Answer: "seen"}, {ID: "k8s-71515", Answer: "not seen"}}
	new.History = []Bug{{ID: "k8s-85643", Answer: "not seen"}}
	m, err := NewMatrix([]*Report{old, new, reportOf("other", "v1.0.0", nil)})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Rows) != 1 || m.Rows[0].Feature != "k8s-85643" || m.Rows[0].Cells[0].State != "seen" || m.Rows[0].Cells[1].State != "not seen" || m.Rows[0].Cells[2].State != "" {
		t.Errorf("%+v", m.Rows)
	}
}

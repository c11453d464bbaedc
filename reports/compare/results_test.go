package compare

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

func TestResultsHaveARowForEachSubject(t *testing.T) {
	c, err := New("rollout", []Subject{subject("a", 0, 0, 0), subject("b", 5, 60, 7)})
	if err != nil {
		t.Fatal(err)
	}
	c.Command = "hitless compare rollout --subject a --subject b --runs 3 --set checkFall=2"
	file := filepath.Join(t.TempDir(), "compare.json")
	var b bytes.Buffer
	if err := WriteJSON(&b, c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	read, err := Read(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := WriteResults(&b, []*Comparison{read}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| rollout checkFall=2 | a | 3 | 3 pass | 0 (0) | 0 (0) | none |", "| rollout checkFall=2 | b | 3 | 3 fail | 7 (60) | 0 (0) | 600 ms |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestRunsHaveARowEach(t *testing.T) {
	lossy := subject("b", 5)
	lossy.Runs[0].Failures = []Failures{{"tcp-new", "refused", "proxy stop", 1000}, {"tcp-long", "reset", "", 2}, {"tcp-long", "refused", "", 3}}
	lossy.Runs[0].HistorySha256 = strings.Repeat("ab", 32)
	broken := Subject{Subject: "c", Runs: []Run{InvalidRun(1, "report.json", "")}}
	c, err := New("restart", []Subject{subject("a", 0), lossy, broken})
	if err != nil || c.Verdict != analysis.Invalid {
		t.Fatal(c, err)
	}
	c.Command = "hitless compare restart --subject a --set baseline=10s --set signal=KILL --set settle=10s --runs 1"
	var b bytes.Buffer
	if err := WriteRuns(&b, []*Comparison{c}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| restart signal=KILL | a | pass |", "| restart signal=KILL | b | fail |", "| 5 | 0 | refused 1,003, reset 2 |", "| 1 | `abababab` |", "| restart signal=KILL | c | invalid | 0 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestComparisonsThatCannotBeRead(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "another file": `{"verdict":"pass","lanes":[]}`, "the future": `{"schemaVersion":99,"subjects":[{"subject":"a"}]}`} {
		file := filepath.Join(t.TempDir(), "compare.json")
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(t.Context(), file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
	}
}

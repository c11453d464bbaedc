package compare

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

func TestResultsHaveARowForEachSubject(t *testing.T) {
	c, err := New("rollout", []Subject{subject("a", 0, 0, 0), subject("b", 5, 60, 7)}, Options{})
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

// A run that cannot be trusted has no part in the numbers of its subject, and half a connection is not rounded away.
func TestNumbersOfResultsAreOfValidRuns(t *testing.T) {
	c := compared(t, Options{}, lost("a", 0, 1, 900).judged("pass fail invalid").gaps(0, 10, 9000), lost("b", 0, 0, 0).ended(0).ended(1).ended(2))
	var b bytes.Buffer
	if err := WriteResults(&b, []*Comparison{c}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a | 3 | 1 pass, 1 fail, 1 invalid | 0.5 (1) | 0 (0) | 10 ms |", "| b | 3 | 3 invalid | – | – | – |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestRunsHaveARowEach(t *testing.T) {
	lossy := subject("b", 5)
	lossy.Runs[0].Failures = []analysis.Failures{{Lane: "tcp-new", Class: "refused", Event: "proxy stop", Connections: 1000}, {Lane: "tcp-long", Class: "reset", Connections: 2}, {Lane: "tcp-long", Class: "refused", Connections: 3}}
	lossy.Runs[0].HistorySha256 = strings.Repeat("ab", 32)
	broken := Subject{Subject: "c", Runs: []Run{InvalidRun(1, "report.json", "")}}
	c, err := New("restart", []Subject{subject("a", 0), lossy, broken}, Options{})
	if err != nil || c.Verdict != analysis.Fail {
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

// A file of version 1 is judged by the rules of today, and says what it does not have.
func TestVersion1IsRead(t *testing.T) {
	runs := func(dropped int) string {
		var all []string
		for seed := range 2 {
			all = append(all, fmt.Sprintf(`{"seed":%d,"verdict":%q,"attempts":9000,"dropped":%d,"delayed":0,"worstGapMs":%d,"report":"report.json"}`,
				seed+1, map[bool]string{true: "pass", false: "fail"}[dropped == 0], dropped, dropped*10))
		}
		return strings.Join(all, ",")
	}
	file := filepath.Join(t.TempDir(), "compare.json")
	text := `{"schemaVersion":1,"scenario":"rollout","subjects":[{"subject":"a","runs":[` + runs(0) + `]},{"subject":"b","runs":[` + runs(1497) + `]}],
		"difference":{"metric":"dropped","estimate":1497,"low":1497,"high":1497,"real":null},"verdict":"pass"}`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Read(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Verdict != analysis.Fail || said(c) != "pass, fail | b worse: worse same worse -" {
		t.Errorf("%s, %s", c.Verdict, said(c))
	}
	var b bytes.Buffer
	if err := WriteTerminal(&b, c); err != nil || !strings.Contains(b.String(), "Program not recorded; kernel not recorded; control plane not recorded.") ||
		!strings.Contains(b.String(), "2 of 2 runs dropped more") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// The column for the recovery check is there only if a run has one.
func TestTablesHaveProxiesThatDidNotFollow(t *testing.T) {
	stuck, none := 2, 0
	b := lost("b", 0, 0)
	b.Runs[0].NotFollowed, b.Runs[1].NotFollowed = &stuck, &none
	for name, write := range map[string]func(io.Writer, []*Comparison) error{"results": WriteResults, "runs": WriteRuns} {
		for _, c := range []struct {
			subject sub
			want    bool
		}{{b, true}, {lost("b", 0, 0), false}} {
			var out bytes.Buffer
			if err := write(&out, []*Comparison{compared(t, Options{}, lost("a", 0, 0), c.subject)}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "did not follow") != c.want {
				t.Errorf("%s, with a check: %v:\n%s", name, c.want, out.String())
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			for _, line := range lines {
				if strings.Count(line, "|") != strings.Count(lines[0], "|") {
					t.Errorf("%s: rows of different lengths:\n%s", name, out.String())
				}
			}
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

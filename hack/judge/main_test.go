package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/suites/conformance"
)

const committed = "../../docs/results"

// asked is what the command answers, and prints.
func asked(t *testing.T, args ...string) (yes bool, printed string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, &out, &errs)
	if code > 1 || (code == 1) != (errs.Len() > 0) {
		t.Fatalf("%q: exit code %d, and %q", args, code, errs.String())
	}
	return code == 0, out.String()
}

// comparisonFile is a comparison of two subjects with two runs each.
func comparisonFile(t *testing.T, change func(old, bundled []compare.Run)) string {
	t.Helper()
	made := func(second string) *record.Made {
		return &record.Made{Started: "2026-11-30T12:00:0" + second + "Z", Tools: "abc"}
	}
	old := []compare.Run{{Seed: 1, Verdict: analysis.Fail, Dropped: 7, Made: made("1")}, {Seed: 2, Verdict: analysis.Fail, Dropped: 7, Made: made("2")}}
	bundled := []compare.Run{{Seed: 1, Verdict: analysis.Pass, Made: made("3")}, {Seed: 2, Verdict: analysis.Pass, Made: made("4")}}
	change(old, bundled)
	c, err := compare.New("rollout", []compare.Subject{{Subject: "old", Runs: old}, {Subject: "bundled", Runs: bundled}}, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := compare.WriteJSON(&b, c); err != nil {
		t.Fatal(err)
	}
	return written(t, "compare.json", b.String())
}

func written(t *testing.T, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// A comparison with an invalid or skipped run, and a file that is none, are not valid, however the file is laid out.
func TestValid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(old, bundled []compare.Run)
		yes    bool
	}{
		"all measured": {func(_, _ []compare.Run) {}, true},
		"one invalid":  {func(old, _ []compare.Run) { old[1].Verdict = analysis.Invalid }, false},
		"one skipped":  {func(_, bundled []compare.Run) { bundled[0].Verdict = analysis.Skipped }, false},
		"one invalid where others fail": {func(old, bundled []compare.Run) {
			bundled[0].Verdict, bundled[0].Dropped, old[1].Verdict = analysis.Fail, 9, analysis.Invalid
		}, false},
		"no verdict": {func(_, bundled []compare.Run) { bundled[0].Verdict = "" }, false},
		"no pair":    {func(_, bundled []compare.Run) { bundled[1].Seed = 3 }, false},
	} {
		file := comparisonFile(t, c.change)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dense bytes.Buffer
		if err := json.Compact(&dense, data); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{file, written(t, "compare.json", dense.String())} {
			if yes, _ := asked(t, "valid", file); yes != c.yes {
				t.Errorf("%s: %v", name, yes)
			}
		}
	}
	for name, text := range map[string]string{"empty": "", "no comparison": `{"verdict": "pass"}`, "unknown fields": `{"schemaVersion": 2, "outcome": "invalid"}`} {
		if yes, _ := asked(t, "valid", written(t, "compare.json", text)); yes {
			t.Errorf("%s is valid", name)
		}
	}
}

// A suite that ended early, or whose run could not be made, has not judged each spec.
func TestWhole(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *conformance.Report)
		yes    bool
	}{
		"all judged":              {func(*conformance.Report) {}, true},
		"invalid with its run":    {func(r *conformance.Report) { r.Specs[0].State = conformance.Invalid }, true},
		"a spec that skips":       {func(r *conformance.Report) { r.Specs[0].State, r.Specs[0].Run = conformance.Skipped, "" }, true},
		"ended early":             {func(r *conformance.Report) { r.Ended = "interrupted" }, false},
		"invalid without a run":   {func(r *conformance.Report) { r.Specs[0].State, r.Specs[0].Run = conformance.Invalid, "" }, false},
		"a spec that did not run": {func(r *conformance.Report) { r.Specs[1].State, r.Specs[1].Run = conformance.NotRun, "" }, false},
		"a state of the future":   {func(r *conformance.Report) { r.Specs[1].State, r.Specs[1].Run = "lost", "" }, false},
		"no spec":                 {func(r *conformance.Report) { r.Specs = nil }, false},
		"another version":         {func(r *conformance.Report) { r.SchemaVersion++ }, false},
	} {
		r := &conformance.Report{APIVersion: "hitless/v1", Kind: "ConformanceSuiteReport", SchemaVersion: conformance.ReportVersion, Specs: []conformance.Result{
			{Name: "restart new", State: conformance.Passed, Run: "runs/restart"}, {Name: "drain new", State: conformance.Failed, Run: "runs/drain"}}}
		c.change(r)
		dir := t.TempDir()
		if err := conformance.Write(dir, r, nil, nil); err != nil {
			t.Fatal(err)
		}
		if yes, _ := asked(t, "whole", dir); yes != c.yes {
			t.Errorf("%s: %v", name, yes)
		}
	}
	if yes, _ := asked(t, "whole", t.TempDir()); yes {
		t.Error("a folder without a report is whole")
	}
}

// The committed verifications confirm their runs. One with a finding or a doubt does not, nor does a file that cannot be read; its name is printed.
func TestConfirmed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(committed, "verified", "*.json"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	if yes, said := asked(t, append([]string{"confirmed"}, files...)...); !yes || said != "" {
		t.Errorf("committed: %v, %s", yes, said)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(r *verify.Result){
		"a disagreement":    func(r *verify.Result) { r.Findings = append(r.Findings, verify.Finding{}) },
		"more of them":      func(r *verify.Result) { r.More = 1 },
		"a lost packet":     func(r *verify.Result) { r.Lost = map[string]uint64{"client": 1} },
		"a missing capture": func(r *verify.Result) { r.Missing = []string{"packets"} },
		"no command":        func(r *verify.Result) { r.Run.Command = "" },
	} {
		var r verify.Result
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		red := written(t, "red.json", string(text))
		if yes, said := asked(t, "confirmed", files[0], red); yes || said != red+"\n" {
			t.Errorf("%s: %v, %q", name, yes, said)
		}
	}
	for _, text := range []string{"", "{}", `{"run": {"command": "hitless run rollout"}, "disagreements": 3}`} {
		red := written(t, "red.json", text)
		if yes, said := asked(t, "confirmed", red); yes || said != red+"\n" {
			t.Errorf("%q: %v, %q", text, yes, said)
		}
	}
}

// The committed picture is of the first run of its row. A run that began at another time is another one.
func TestFirst(t *testing.T) {
	picture := filepath.Join(committed, "picture", "report.json")
	if yes, _ := asked(t, "first", filepath.Join(committed, "rollout.json"), picture); !yes {
		t.Error("the committed picture is not of its row")
	}
	if yes, _ := asked(t, "first", filepath.Join(committed, "restart.json"), picture); yes {
		t.Error("the picture is of another row")
	}
	row := comparisonFile(t, func(_, _ []compare.Run) {})
	if yes, _ := asked(t, "first", row, picture); yes {
		t.Error("the picture is of a run that began at another time")
	}
	folder := filepath.Dir(written(t, record.HostFile, `{"started": "2026-11-30T12:00:01Z"}`))
	made, err := record.MadeIn(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	row = comparisonFile(t, func(old, _ []compare.Run) { old[0].Made = made })
	if yes, _ := asked(t, "first", row, folder); !yes {
		t.Error("the folder of the first run is not told")
	}
	untold := comparisonFile(t, func(old, _ []compare.Run) { old[0].Made = nil })
	for _, other := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		for _, row := range []string{row, untold} {
			if yes, _ := asked(t, "first", row, other); yes {
				t.Errorf("%s is the first run", other)
			}
		}
	}
}

func TestWrongQuestions(t *testing.T) {
	for _, args := range [][]string{nil, {"valid"}, {"valid", "a", "b"}, {"confirmed"}, {"first", "a"}, {"why", "a"}} {
		var errs bytes.Buffer
		if code := run(t.Context(), args, &errs, &errs); code != 2 || !strings.Contains(errs.String(), "no question") {
			t.Errorf("%q: exit code %d, %s", args, code, errs.String())
		}
	}
}

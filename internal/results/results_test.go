package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios/museum"
)

var (
	own   = strings.Repeat("ab", 32)
	other = strings.Repeat("cd", 32)
)

// rollout is a rollout of the bundled proxier. With a class other than ok the proxy of node-2 is killed, and connections fail so.
func rollout(program string, seed uint64, class record.Class) *recordtest.Lab {
	o := recordtest.Rollout{Seed: seed, Fallback: true, Rollouts: 1}
	l := o.Lab()
	l.Run.ProgramSha256, l.Run.ControlPlane = program, "replay"
	l.Run.Kernel = record.Kernel{Kind: "vm", Release: "6.1.0", QEMU: "7.2.22 (Debian)"}
	if class != record.OK {
		at := recordtest.ScenarioAt + 8*time.Second
		l.Event(at, record.KindProxy, "node-2", "bundled", "the proxy on node-2 was killed", "state", "killed")
		l.Faults = append(l.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: at + time.Millisecond, To: at + 300*time.Millisecond, Class: class})
	}
	return o.Start(l)
}

const host = `{"started": "2026-11-27T15:23:43Z", "programs": [{"program": "kube-proxy@v1.37.1", "source": "built", "sha256": "ef"}], "toolPackages": ["nftables_1"]}`

// writeRun writes the folder of a run.
func writeRun(t *testing.T, folder string, l *recordtest.Lab) (*analysis.Report, string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(folder, record.HistoryDir), os.DirFS(l.Write(t).Dir())); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, folder, record.HostFile, []byte(host))
	r, origin, err := reports.Seal(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, origin.HistorySha256
}

// kept is a folder of results with one kept comparison of two runs with a program, and the folder of the comparison.
func kept(t *testing.T, program string) (top, dir string) {
	t.Helper()
	top, dir = t.TempDir(), t.TempDir()
	var subjects []compare.Subject
	for _, name := range []string{"bundled", "kube-proxy@v1.37.1/ipvs"} {
		folder := strings.NewReplacer("@", "-", "/", "-").Replace(name) + "-seed-1"
		r, history := writeRun(t, filepath.Join(dir, folder), rollout(program, 1, lost(name == "bundled")))
		subjects = append(subjects, compare.Subject{Subject: name, Runs: []compare.Run{compare.RunOf(r, filepath.Join(folder, reports.ReportFile), history)}})
	}
	c, err := compare.New("rollout", subjects, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Command = "hitless compare rollout --subject bundled --subject kube-proxy@v1.37.1/ipvs --runs 1 --controlplane replay --set rollouts=1"
	if err := errors.Join(compare.Write(dir, c, nil), Keep(t.Context(), dir, filepath.Join(top, "rollout.json"))); err != nil {
		t.Fatal(err)
	}
	return top, dir
}

func check(t *testing.T, top string) *Checked {
	t.Helper()
	c, err := Check(t.Context(), top, own)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// oneVerified is a committed verification that agrees.
func oneVerified(t *testing.T) *verify.Result {
	t.Helper()
	r, err := ReadVerified(t.Context(), "../../docs/results/verified/rollout-1.json")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A verification that disagrees is listed, whichever program made it.
func TestDisagreementsAreListed(t *testing.T) {
	r := oneVerified(t)
	top := t.TempDir()
	listed := func() bool {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		testfiles.Write(t, top, "rollout-1.json", text)
		return !check(t, top).OK()
	}
	r.Run.ProgramSha256 = own
	if listed() {
		t.Error("a verification that agrees is listed")
	}
	r.Lost["client"] = 1
	if !listed() {
		t.Error("an inconclusive verification is not listed")
	}
	delete(r.Lost, "client")
	r.Findings = append(r.Findings, verify.Finding{Kind: verify.OtherPath, Text: "another path"})
	if !listed() {
		t.Error("a disagreement is not listed")
	}
}

// A verification tells classes and causes, so that one of another program that lost otherwise differs.
func TestVerificationsTellTheirFailures(t *testing.T) {
	r := oneVerified(t)
	read := func(failures *[]analysis.Failures) Row {
		r.Run.Failures = failures
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		top := t.TempDir()
		testfiles.Write(t, top, "rollout-1.json", text)
		rows, err := Read(t.Context(), top, "*.json")
		if err != nil || len(rows) != 1 {
			t.Fatalf("%d rows: %v", len(rows), err)
		}
		return rows[0]
	}
	one, other := read(&[]analysis.Failures{{Lane: "tcp-new", Class: "refused"}}), read(&[]analysis.Failures{{Lane: "tcp-new", Class: "reset"}})
	if s := (Sampler{}); s.differs(one, one) != "" || s.differs(one, other) == "" {
		t.Errorf("%q and %q", s.differs(one, one), s.differs(one, other))
	}
	if read(nil).KindsTold {
		t.Error("an older verification tells classes")
	}
}

// A kept result of this program is not listed. Red twins: each reason for which a row or a file is listed.
func TestEachReasonIsListed(t *testing.T) {
	top, _ := kept(t, own)
	if c := check(t, top); !c.OK() || c.Current != 2 || len(c.Rows) != 2 {
		t.Fatalf("a complete result of this program: %+v", c)
	}
	file := filepath.Join(top, "rollout.json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	without := func(field string) string {
		var c map[string]any
		if err := json.Unmarshal(whole, &c); err != nil {
			t.Fatal(err)
		}
		run := c["subjects"].([]any)[1].(map[string]any)["runs"].([]any)[0].(map[string]any)
		outer, inner, nested := strings.Cut(field, ".")
		if nested {
			delete(run[outer].(map[string]any), inner)
		} else {
			delete(run, field)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, twin := range map[string]struct{ text, why string }{
		"another program":     {strings.Replace(string(whole), own, other, 1), "of the program cdcdcdcdcdcd"},
		"no program":          {without("programSha256"), "without the program"},
		"no kernel":           {without("kernel"), "without the kernel"},
		"no QEMU":             {without("kernel.qemu"), "without the kernel"},
		"no control plane":    {without("controlPlane"), "without the control plane"},
		"no date":             {without("made.started"), "without the date"},
		"no tools":            {without("made.tools"), "without the tools"},
		"nothing of the host": {without("made"), "without the programs of upstream, the tools, the date"},
		"no programs":         {without("made.programs"), "without the programs of upstream"},
	} {
		testfiles.Write(t, top, "rollout.json", []byte(twin.text))
		c := check(t, top)
		if c.OK() || len(c.Findings) != 1 || c.Findings[0].Why != twin.why || len(c.Findings[0].Rows) != 1 || c.Findings[0].File != "rollout.json" {
			t.Errorf("%s: %+v, want one row %s", name, c.Findings, twin.why)
		}
	}
	for name, text := range map[string]string{"notes.txt": "x", "list.json": "[]", "object.json": `{"a": 1}`, "broken.json": `{"scenario": 1, "subjects": 2}`} {
		testfiles.Write(t, top, "rollout.json", whole)
		unknown := testfiles.Write(t, top, name, []byte(text))
		if c := check(t, top); c.OK() || len(c.Unread) != 1 || c.Unread[0].File != name {
			t.Errorf("%s: %+v", name, c.Unread)
		}
		if err := os.Remove(unknown); err != nil {
			t.Fatal(err)
		}
	}
}

// A described subject has no version in its name: the file must name its program.
func TestADescribedSubjectNeedsItsProgram(t *testing.T) {
	r := Row{Subject: "exec:faulty", Origin: Origin{own, "host 6.1.0", "replay", nil}}
	if lacks := strings.Join(r.Lacks(), ", "); lacks != "the programs of upstream, the tools, the date" {
		t.Errorf("it lacks %s", lacks)
	}
	r.Made = &record.Made{Started: "2026-11-27T15:23:43Z", Tools: record.NoTools}
	if lacks := r.Lacks(); len(lacks) > 0 {
		t.Errorf("it lacks %v", lacks)
	}
}

// Folders of results say nothing of the time, so that shards make the same files. A folder that does not tell cannot be kept.
func TestOnlyKeptResultsHaveTheTime(t *testing.T) {
	top, dir := kept(t, own)
	before, _ := os.ReadFile(filepath.Join(dir, compare.File))
	after, _ := os.ReadFile(filepath.Join(top, "rollout.json"))
	if bytes.Contains(before, []byte("2026-11-27")) || !bytes.Contains(after, []byte("2026-11-27T15:23:43Z")) || !bytes.Contains(after, []byte("kube-proxy@v1.37.1")) {
		t.Errorf("in the folder:\n%s\nkept:\n%s", before, after)
	}
	if err := testfiles.ValidateJSON(t, compare.Schema, after); err != nil {
		t.Error(err)
	}
	run := filepath.Join(dir, "bundled-seed-1")
	if err := Keep(t.Context(), run, filepath.Join(top, "report.json")); err != nil {
		t.Fatal(err)
	}
	report, _ := os.ReadFile(filepath.Join(top, "report.json"))
	if err := testfiles.ValidateJSON(t, analysis.Schema, report); err != nil {
		t.Error(err)
	}
	if c := check(t, top); !c.OK() || c.Current != 3 {
		t.Errorf("with the report of a run: %+v", c)
	}
	if err := os.Remove(filepath.Join(run, record.HostFile)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{dir, run, t.TempDir()} {
		if err := Keep(t.Context(), from, filepath.Join(top, "again.json")); err == nil {
			t.Errorf("%s was kept", from)
		}
	}
}

// The first line of a table of upstream's specs says what made it. Without it each spec is listed; a broken one is an error.
func TestSpecsOfUpstream(t *testing.T) {
	const specs = "passed\t66\tServices should work\nfailed\t3\tServices should end\n"
	facts := `# {"subject":"kube-proxy@v1.37.1/ipvs","programSha256":"` + own + `","kernel":"host 6.1.0","controlPlane":"kube","made":{"started":"2026-11-27T15:23:43Z","programs":[{"program":"kube-proxy@v1.37.1","sha256":"ef"}],"tools":"ab"}}` + "\n"
	for name, c := range map[string]struct {
		text             string
		findings, unread int
	}{"whole": {facts + specs, 0, 0}, "without facts": {specs, 1, 0}, "broken facts": {facts[:40] + "\n" + specs, 0, 1}, "no table": {"66 specs\n", 0, 1}, "empty": {"", 0, 1}} {
		top := t.TempDir()
		testfiles.Write(t, top, "specs.tsv", []byte(c.text))
		if got := check(t, top); len(got.Findings) != c.findings || len(got.Unread) != c.unread {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A run of a mutant whose specs were all skipped was not made, so that nothing of it can be missing. One that was run must tell what made it.
func TestSkippedRunsOfMutantsMissNothing(t *testing.T) {
	for name, c := range map[string]struct {
		cell string
		rows int
	}{
		"skipped": {`"skipped": ["ipv6 UDP"]`, 0},
		"failed":  {`"failed": ["ipv6 UDP"], "skipped": ["ipv6 SCTP"]`, 1},
		"invalid": {`"invalid": ["ipv6 UDP"]`, 1},
		"passed":  {`"historySha256": "ab"`, 1},
	} {
		top := t.TempDir()
		testfiles.Write(t, top, "mutants.json", []byte(`{"schemaVersion": 1, "rows": [{"name": "old", "cells": [{"run": "routing-ipv6", "program": "a", "inputs": "b", "hitless": "`+own+
			`", "kernel": "vm 6.1.0 in QEMU 7.2.22", "controlPlane": "replay", `+c.cell+`}]}]}`))
		if got := check(t, top); len(got.Unread) > 0 || len(got.Rows) != c.rows || got.OK() != (c.rows == 0) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The table has a line for each origin, and names what is not recorded.
func TestOrigins(t *testing.T) {
	rows := []Row{{File: "a.json", Origin: Origin{own, "vm 6.1 in QEMU 7.2", "replay", &record.Made{Started: "2026-11-27T15:23:43Z"}}}, {File: "a.json", Origin: Origin{Program: other}}, {File: "x/conformance.yaml", Origin: Origin{Program: other}}}
	table := Origins(rows)
	for _, want := range []string{"| `abababababab…` | vm 6.1 in QEMU 7.2 | replay | 2026-11-27 | 1 | a |", "| `cdcdcdcdcdcd…` | not recorded | not recorded | not recorded | 2 | a, x |"} {
		if !strings.Contains(table, want) {
			t.Errorf("no line %q:\n%s", want, table)
		}
	}
	if got := Programs(rows); !slices.Equal(got, []string{own, other}) {
		t.Error(got)
	}
}

// Each way in which a row can differ from before is told in words. A repetition with the same outcome is only counted.
func TestChanges(t *testing.T) {
	kind := []analysis.FailureKind{{Lane: "tcp-new", Class: "refused", Event: "proxy killed"}}
	before := []Row{
		{File: "a", Name: "same", Verdict: "fail", Kinds: kind, KindsTold: true, HistorySha256: "1"},
		{File: "a", Name: "verdict", Verdict: "pass", KindsTold: true},
		{File: "a", Name: "class", Verdict: "fail", Kinds: kind, KindsTold: true},
		{File: "a", Name: "untold", Verdict: "fail"},
		{File: "a", Name: "gone", Verdict: "pass"},
	}
	other := []analysis.FailureKind{{Lane: "tcp-new", Class: "reset", Event: "proxy killed"}}
	after := []Row{
		{File: "a", Name: "same", Verdict: "fail", Kinds: kind, KindsTold: true, HistorySha256: "2"},
		{File: "a", Name: "verdict", Verdict: "fail", Kinds: kind, KindsTold: true},
		{File: "a", Name: "class", Verdict: "fail", Kinds: other, KindsTold: true},
		{File: "a", Name: "untold", Verdict: "fail", Kinds: kind, KindsTold: true},
		{File: "b", Name: "new", Verdict: "pass"},
	}
	want := []string{"a, verdict: fail, was pass", `a, class: fail with reset after "proxy killed" on tcp-new, was with refused after "proxy killed" on tcp-new`, "b, new is new: pass",
		"a, gone is gone: it was pass", "2 of 5 rows have the verdict, classes and causes of before; 1 were made anew"}
	if got := Changes(before, after); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := Changes(before, before); len(got) != 1 {
		t.Errorf("without a change: %q", got)
	}
}

// A bug whose loss is short is searched for with as many attempts as it needs; a timeline has its own rate.
func TestBugsAreSearchedForWithTheirRate(t *testing.T) {
	for _, e := range museum.All() {
		args := MuseumArgs(e, "bundled", 1, nil)
		i := slices.Index(args, "--rate")
		if e.Timeline != nil || i < 0 {
			if e.Timeline == nil || i >= 0 {
				t.Errorf("%s: %q", e.ID, args)
			}
			continue
		}
		if rate, err := strconv.ParseFloat(args[i+1], 64); err != nil || rate < e.Rate || rate <= 0 {
			t.Errorf("%s needs %g attempts per second: %q", e.ID, e.Rate, args)
		}
	}
}

// Each job of a nightly run is a row with how it ended and what made it.
func TestJobsTellHowTheyEnded(t *testing.T) {
	top := t.TempDir()
	job := Job{Name: "netns", Seconds: 12, Program: strings.Repeat("ab", 32), Sources: "1", Kernel: "6.1.0", Made: record.Made{Started: "2026-11-29T11:00:00Z", Tools: "1"}}
	var all Jobs
	all.Put(job)
	job.Name, job.ExitCode = "cross", 1
	all.Put(job)
	if err := all.Write(filepath.Join(top, "jobs.json")); err != nil {
		t.Fatal(err)
	}
	checked := check(t, top)
	rows := checked.Rows
	if len(rows) != 2 || rows[0].Verdict != "failed" || rows[1].Verdict != "passed" {
		t.Fatalf("%+v", rows)
	}
	if !slices.ContainsFunc(checked.Findings, func(f Finding) bool {
		return slices.Equal(f.Rows, []string{"the job cross"}) && strings.Contains(f.Why, "exit code 1")
	}) {
		t.Errorf("the failed job is not listed: %+v", checked.Findings)
	}
	for _, r := range rows {
		if facts := r.Lacks(); len(facts) > 0 {
			t.Errorf("%s lacks %q", r.Name, facts)
		}
	}
}

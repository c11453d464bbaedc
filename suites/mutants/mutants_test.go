package mutants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	_ "github.com/hitless/hitless/suites" // for the flags that `make nightly` gives all suites
	"github.com/hitless/hitless/suites/conformance"
)

// Each mutant has a name and a defect of its own, a sentence, features of the catalog, and runs that examine one of them.
func TestMutantsAreConsistent(t *testing.T) {
	if len(All()) < 40 {
		t.Errorf("%d mutants, want 40", len(All()))
	}
	names, defects := map[string]bool{Unmutated: true}, map[string]bool{}
	for _, m := range All() {
		s := m.subject()
		defect := fmt.Sprint(s.Faults, s.Flags, s.Subject)
		if names[m.Name] || defects[defect] || m.Does == "" || len(m.Features) == 0 || len(m.Runs) > 5 || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(m.Name) {
			t.Errorf("%+v is not complete, or another mutant is the same", m)
		}
		names[m.Name], defects[defect] = true, true
		if (m.Subject == "") != (m.Twin == "") || m.Subject != "" && len(m.Faults)+len(m.Flags) > 0 {
			t.Errorf("%s is a subject with faults, or without a twin", m.Name)
		}
		for _, f := range m.Features {
			if !slices.ContainsFunc(specsOf(s.Runs), func(c conformance.Spec) bool { return slices.Contains(c.Features, f) }) {
				t.Errorf("%s should break the feature %q, and none of its runs has a spec of it", m.Name, f)
			}
		}
		for _, run := range m.Runs {
			specs := specsOf([]string{run})
			if len(specs) == 0 || slices.Contains(routingRuns, run) {
				t.Errorf("%s: the catalog has no disruption %q", m.Name, run)
			}
		}
	}
}

// Each run of the catalog has a mutant that should turn a spec of it red.
func TestEachRunHasAMutant(t *testing.T) {
	for _, s := range conformance.Catalog() {
		if !slices.ContainsFunc(All(), func(m Mutant) bool { return slices.Contains(m.subject().Runs, s.Run.Name) }) {
			t.Errorf("no mutant makes the run %s of the spec %q", s.Run.Name, s.Name)
		}
	}
}

// The focus of runs selects their specs and no others.
func TestFocusSelectsRuns(t *testing.T) {
	for _, runs := range [][]string{{"routing-ipv4"}, {"routing-ipv6", "flap"}, {"restart-term"}, {"policy-ports", "routing-ipv4", "routing-ipv6"}} {
		found, _, err := conformance.Selection{Focus: []string{conformance.FocusOf(namesOf(runs)...)}}.Select(conformance.Catalog())
		if err != nil {
			t.Fatal(err)
		}
		if want := specsOf(runs); len(found) != len(want) {
			t.Errorf("%v: %d specs, want %d", runs, len(found), len(want))
		}
		for _, s := range found {
			if !slices.Contains(runs, s.Run.Name) {
				t.Errorf("%v selects %s of run %s", runs, s.Name, s.Run.Name)
			}
		}
	}
}

// lab examines subjects without a lab: the specs in fails fail, by the name of the subject; of all others none.
type lab struct {
	t     *testing.T
	fails map[string][]string
	upset map[string][]string // specs that are invalid
	calls []string
}

func (l *lab) examine(_ context.Context, args []string) (int, error) {
	out := args[len(args)-1]
	name := filepath.Base(out)
	l.calls = append(l.calls, name)
	found, _, err := conformance.Selection{Focus: []string{args[3]}}.Select(conformance.Catalog())
	if err != nil {
		l.t.Fatal(err)
	}
	r := &conformance.Report{APIVersion: "hitless/v1", Kind: "ConformanceSuiteReport", SchemaVersion: conformance.ReportVersion, Program: "own",
		Site: conformance.Site{Kernel: "vm 6.1.0 in QEMU 7.2.22", ControlPlane: "replay"}}
	for _, s := range found {
		state := conformance.Passed
		if slices.Contains(l.fails[name], s.Name) {
			state = conformance.Failed
		}
		if slices.Contains(l.upset[name], s.Name) {
			state = conformance.Invalid
		}
		run := filepath.Join(conformance.RunsDir, s.Run.Name)
		r.Specs = append(r.Specs, conformance.Result{Name: s.Name, State: state, Run: run, HistorySha256: "history of " + s.Run.Name})
		if err := os.MkdirAll(filepath.Join(out, run), 0o755); err != nil {
			return 0, err
		}
		testfiles.Write(l.t, filepath.Join(out, run), record.HostFile, []byte(`{"started": "2026-11-27T15:23:43Z"}`))
	}
	return r.ExitCode(), conformance.Write(out, r, nil, nil)
}

func measurement(t *testing.T, l *lab, names string) Measurement {
	t.Helper()
	some, err := Select(names)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0).UTC()
	return Measurement{Program: program, Faulty: program, Out: filepath.Join(dir, "out"), File: filepath.Join(dir, "table.json"), Mutants: some, Examine: l.examine,
		Log: func(string) {}, Now: func() time.Time { now = now.Add(time.Minute); return now }}
}

// A mutant is killed by a spec of its features that its twin passes, and by no other.
func TestKills(t *testing.T) {
	for name, c := range map[string]struct {
		mutant, twin []string
		want         State
	}{
		"its feature":       {[]string{"ipv4 affinity"}, nil, Killed},
		"another feature":   {[]string{"ipv4 pod to its own Service"}, nil, Survived},
		"nothing":           {nil, nil, Survived},
		"a known deviation": {[]string{"ipv4 policy Local, from a pod"}, []string{"ipv4 policy Local, from a pod"}, Survived},
	} {
		l := &lab{t: t, fails: map[string][]string{"ignore-affinity": c.mutant, Unmutated: c.twin}}
		table, err := measurement(t, l, "ignore-affinity").Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := table.StateOf(All()[0]); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if survivors := table.Survivors(All()); (len(survivors) == 1) != (c.want == Survived) {
			t.Errorf("%s: the survivors are %v", name, survivors)
		}
	}
}

// A proxier without a fault that breaks a promise makes the table invalid, and nothing else is measured.
func TestAFaultlessRowMustBeGreen(t *testing.T) {
	l := &lab{t: t, fails: map[string][]string{Unmutated: {"ipv6 affinity"}}}
	table, err := measurement(t, l, "ignore-affinity,ignore-udp").Run(t.Context())
	if !IsInvalid(err) || len(l.calls) != 1 || len(table.Defects(nil)) != 1 {
		t.Errorf("error %v after the rows %v", err, l.calls)
	}
	if defects := table.Defects([]string{"flap"}); len(defects) > 0 {
		t.Errorf("another run has the defects %v", defects)
	}
}

// An invalid measurement says nothing of a mutant, and the same call measures it again. A mutant that other specs have killed needs no more.
func TestInvalidRowsAreMeasuredAgain(t *testing.T) {
	l := &lab{t: t, upset: map[string][]string{Unmutated: {"ipv6 affinity"}}}
	m := measurement(t, l, "ignore-affinity,ignore-udp")
	if _, err := m.Run(t.Context()); !IsInvalid(err) {
		t.Errorf("the row without a fault is invalid, and the error is %v", err)
	}
	l.upset = map[string][]string{"ignore-affinity": {"ipv4 affinity"}, "ignore-udp": {"ipv4 affinity"}}
	l.fails = map[string][]string{"ignore-udp": {"ipv4 UDP"}}
	table, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := table.StateOf(mutant(t, "ignore-affinity")); got != NotMeasured {
		t.Errorf("the mutant with an invalid row is %s", got)
	}
	l.calls, l.upset = nil, nil
	if _, err := m.Run(t.Context()); err != nil || !slices.Equal(l.calls, []string{"ignore-affinity"}) {
		t.Errorf("measured again: %v, %v", l.calls, err)
	}
	m.Mutants = []Mutant{{Name: "old", Subject: "old", Twin: "new", Features: []string{"affinity"}}}
	l.fails, l.upset = map[string][]string{"old": {"ipv4 affinity"}}, map[string][]string{"new": {"ipv4 affinity"}}
	if table, err = m.Run(t.Context()); err != nil || table.StateOf(m.Mutants[0]) != NotMeasured {
		t.Errorf("the mutant whose twin is invalid is %s: %v", table.StateOf(m.Mutants[0]), err)
	}
}

// A defect of the proxier without a fault concerns its own mutants. Those of another proxy are measured all the same.
func TestADefectConcernsNoOtherProxy(t *testing.T) {
	l := &lab{t: t, fails: map[string][]string{Unmutated: {"ipv6 affinity"}}}
	m := measurement(t, l, "ignore-affinity")
	if _, err := m.Run(t.Context()); !IsInvalid(err) {
		t.Fatalf("the error is %v", err)
	}
	m.Mutants = []Mutant{mutant(t, "k8s-85643")}
	if _, err := m.Run(t.Context()); err != nil {
		t.Errorf("a mutant of kube-proxy: %v", err)
	}
}

// A twin is measured in the runs in which its mutants failed, and mutants that are the same subject are one row.
func TestTwinsAreMeasuredWhereMutantsFail(t *testing.T) {
	run := []string{"rollout-local"}
	for name, c := range map[string]struct {
		fails []string
		want  State
		calls []string
	}{
		"a disruption": {namesOf(run)[:1], Killed, []string{"old", "new"}},
		"nothing":      {nil, Survived, []string{"old"}},
	} {
		l := &lab{t: t, fails: map[string][]string{"old": c.fails}}
		m := measurement(t, l, "k8s-85643")
		both := Mutant{Name: "old", Subject: "old", Twin: "new", Features: m.Mutants[0].Features, Runs: run}
		other := both
		other.Runs = []string{"flap"}
		m.Mutants = []Mutant{both, other}
		table, err := m.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := table.StateOf(both); got != c.want || !slices.Equal(l.calls, c.calls) {
			t.Errorf("%s: %s after the calls %v", name, got, l.calls)
		}
		_, flap := table.Cell("old", "flap")
		_, twin := table.Cell("new", "rollout-local")
		_, routing := table.Cell("new", "routing-ipv4")
		if !flap || twin != (c.want == Killed) || routing {
			t.Errorf("%s: measured the other mutant's run %v, the twin in the run that failed %v, and in routing %v", name, flap, twin, routing)
		}
	}
}

// A call after an interrupt measures only what is missing; another program measures everything again.
func TestMeasuringContinues(t *testing.T) {
	l := &lab{t: t}
	m := measurement(t, l, "ignore-affinity,ignore-udp")
	examine := m.Examine
	m.Examine = func(ctx context.Context, args []string) (int, error) {
		if len(l.calls) == 2 {
			return 130, nil
		}
		return examine(ctx, args)
	}
	if _, err := m.Run(t.Context()); err == nil {
		t.Fatal("an unknown exit code is no error")
	}
	m.Examine = examine
	for range 2 {
		if _, err := m.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{Unmutated, "ignore-affinity", "ignore-udp"}; !slices.Equal(l.calls, want) {
		t.Errorf("measured %v, want %v", l.calls, want)
	}
	m.Mutants = append(m.Mutants, mutant(t, "late-deletion"))
	if _, err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	table, err := Read(m.File)
	if err != nil {
		t.Fatal(err)
	}
	if _, measured := table.Cell(Unmutated, "recreate"); !measured {
		t.Error("the twin has no result of the run of another mutant")
	}
	before := len(l.calls)
	if err := os.WriteFile(m.Program, []byte("2"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context()); err != nil || len(l.calls) != before+4 {
		t.Errorf("%d of 4 rows were measured with another program: %v", len(l.calls)-before, err)
	}
}

// A twin that was measured with another program proves nothing.
func TestProgramsAreNotMixed(t *testing.T) {
	l := &lab{t: t, fails: map[string][]string{"ignore-affinity": {"ipv4 affinity"}}}
	table, err := measurement(t, l, "ignore-affinity").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := mutant(t, "ignore-affinity")
	if got := table.StateOf(m); got != Killed {
		t.Errorf("with one program: %s", got)
	}
	c, _ := table.Cell(Unmutated, "routing-ipv4")
	if c.Hitless != "own" || c.Kernel != "vm 6.1.0 in QEMU 7.2.22" || c.ControlPlane != "replay" || c.HistorySha256 != "history of routing-ipv4" || c.Made == nil || c.Made.Started == "" {
		t.Errorf("the cell does not say what it was measured with: %+v", c)
	}
	c.Program = "another"
	table.Put(Unmutated, c)
	if got := table.StateOf(m); got != NotMeasured {
		t.Errorf("with two programs: %s", got)
	}
}

func mutant(t *testing.T, name string) Mutant {
	t.Helper()
	some, err := Select(name)
	if err != nil {
		t.Fatal(err)
	}
	return some[0]
}

// The page names the mutants that survive, and the specs that prove nothing yet.
func TestThePageShowsWhatIsMissing(t *testing.T) {
	l := &lab{t: t, fails: map[string][]string{"ignore-affinity": {"ipv4 affinity", "ipv6 affinity"}}}
	table, err := measurement(t, l, "ignore-affinity,ignore-udp").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := table.WriteMarkdown(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{"1 of ", "| affinity | killed | 2 | affinity (ipv4, ipv6) |", "| udp | **survived** | 0 |  |", "| ipv6 affinity | ignore-affinity |", "\n- ipv4 pod to its own Service\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text[:400])
		}
	}
}

func TestWrongNamesAndFilesAreRefused(t *testing.T) {
	if _, err := Select("ignore-affinty"); err == nil {
		t.Error("an unknown mutant is selected")
	}
	file := filepath.Join(t.TempDir(), "table.json")
	for _, text := range []string{"{", `{"schemaVersion": 99}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil {
			t.Errorf("%s is a table", text)
		}
	}
}

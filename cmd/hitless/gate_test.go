//go:build unix

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
)

// filesOf reads all files below a folder.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gateClasses are the losses of subjects; see comparison.
var gateClasses = map[string]record.Class{"old": record.OK, "also-old": record.OK, "drops": record.Refused, "also-drops": record.Refused, "delays": record.Delayed}

// The folder of a comparison is gated by the rules of `hitless compare`, and stays as it is. Each row that passes has a twin that fails.
func TestComparisonsAreGated(t *testing.T) {
	wide := testfiles.Write(t, t.TempDir(), "wide.yaml", []byte("dropped: 1000\ndelayed: 1000\n"))
	narrow := testfiles.Write(t, t.TempDir(), "narrow.yaml", []byte("dropped: 1\n"))
	for _, c := range []struct {
		order, budget, want string
		code                int
	}{
		{"old also-old", "", "PASS", 0},
		{"old drops", "", "2 of 2 runs dropped more", 1},
		{"old delays", "", "2 of 2 runs delayed more", 1},
		{"drops old", "", "old is better than drops", 0},
		{"drops also-drops", "", "also-drops fails its budget in 2 of 2 runs", 1},
		{"drops also-drops", wide, "also-drops is the same as drops", 0},
		{"drops also-drops", narrow, "drops fails its budget in 2 of 2 runs", 1},
		{"drops old", narrow, "drops fails its budget in 2 of 2 runs", 1},
		{"old drops", wide, "drops is worse than old", 1},
	} {
		dir := comparison(t, gateClasses, strings.Fields(c.order)...)
		before := filesOf(t, dir)
		args := []string{"gate", dir}
		if c.budget != "" {
			args = append(args, "--budget", c.budget)
		}
		if code, out, errs := executed(args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s, budget %q: exit code %d, want %d and %q:\n%s%s", c.order, c.budget, code, c.code, c.want, out, errs)
		}
		if after := filesOf(t, dir); !maps.Equal(before, after) {
			t.Errorf("%s: the gate changed the folder", c.order)
		}
	}
}

// The numbers and verdicts of compare.json are not believed: the records decide.
func TestAComparisonThatClaimsAPassIsGatedByItsRecords(t *testing.T) {
	dir := comparison(t, gateClasses, "old", "drops")
	file := filepath.Join(dir, compare.File)
	c, err := compare.Read(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Subjects {
		for j := range c.Subjects[i].Runs {
			r := &c.Subjects[i].Runs[j]
			r.Verdict, r.Dropped, r.WorstGapMs, r.OutageSeconds, r.Failures = "pass", 0, 0, nil, nil
		}
	}
	writeComparison(t, file, c)
	if c, err = compare.Read(t.Context(), file); err != nil || c.Verdict != "pass" {
		t.Fatalf("the file claims %v, %v", c, err)
	}
	said(t, 1, "gate", dir)
}

func writeComparison(t *testing.T, file string, c *compare.Comparison) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := compare.WriteJSON(f, c); err != nil {
		t.Fatal(err)
	}
}

// A comparison whose records are not those that were compared is invalid, although its reports say that it passes.
func TestAChangedComparisonIsGatedAsInvalid(t *testing.T) {
	for name, change := range map[string]func(dir string, c *compare.Comparison) error{
		"a changed byte": func(dir string, _ *compare.Comparison) error {
			file := filepath.Join(dir, "also-old-2", record.HistoryDir, record.EventsFile)
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			data[len(data)/2] ^= 1
			return os.WriteFile(file, data, 0o600)
		},
		"another run in the place of one": func(dir string, _ *compare.Comparison) error {
			if err := os.RemoveAll(filepath.Join(dir, "also-old-2")); err != nil {
				return err
			}
			return os.CopyFS(filepath.Join(dir, "also-old-2"), os.DirFS(filepath.Join(dir, "old-1")))
		},
		"one run for both subjects": func(_ string, c *compare.Comparison) error {
			c.Subjects[1].Runs = c.Subjects[0].Runs
			return nil
		},
		"no seal": func(dir string, _ *compare.Comparison) error {
			return os.Remove(filepath.Join(dir, "old-1", record.SealFile))
		},
	} {
		dir := comparison(t, gateClasses, "old", "also-old")
		said(t, 0, "gate", dir)
		file := filepath.Join(dir, compare.File)
		c, err := compare.Read(t.Context(), file)
		if err == nil {
			err = change(dir, c)
		}
		if err != nil {
			t.Fatal(err)
		}
		writeComparison(t, file, c)
		if text := said(t, 3, "gate", dir); !strings.Contains(text, "INVALID") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// Only signed records are accepted with a key.
func TestASignedComparison(t *testing.T) {
	private, _, public, _ := keyFiles(t)
	dir := comparison(t, gateClasses, "old", "also-old")
	if text := said(t, 3, "gate", dir, "--verify-with", public); !strings.Contains(text, "not signed") {
		t.Errorf("unsigned:\n%s", text)
	}
	for _, name := range []string{"old-1", "old-2", "also-old-1", "also-old-2"} {
		h, err := record.OpenHistory(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := record.SealHistory(filepath.Join(dir, name), h.Seal.Sealed, private)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name, record.SealFile), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	said(t, 0, "gate", dir, "--verify-with", public)
}

// Other folders are refused, each with what is wrong.
func TestFoldersThatCannotBeGated(t *testing.T) {
	b := testfiles.Write(t, t.TempDir(), "budget.yaml", []byte("dropped: 1\n"))
	lane := testfiles.Write(t, t.TempDir(), "lane.yaml", []byte("rules:\n- {lane: none, dropped: 1}\n"))
	missing := comparison(t, gateClasses, "old", "also-old")
	if err := os.RemoveAll(filepath.Join(missing, "old-2")); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	testfiles.Write(t, foreign, compare.File, []byte(`{"verdict":"pass"}`))
	run := t.TempDir()
	writeRun(t, run)
	sealRun(t, run, nil)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an empty folder":               {[]string{"gate", t.TempDir(), "--budget", b}, "neither the folder of a run nor that of a comparison"},
		"no folder":                     {[]string{"gate", filepath.Join(t.TempDir(), "none"), "--budget", b}, "neither the folder of a run nor that of a comparison"},
		"a run without a budget":        {[]string{"gate", run}, "--budget FILE"},
		"a comparison without its runs": {[]string{"gate", missing}, "old with seed 2"},
		"another compare.json":          {[]string{"gate", foreign}, "of `hitless compare`"},
		"a lane that the runs lack":     {[]string{"gate", comparison(t, gateClasses, "old", "also-old"), "--budget", lane}, "lane.yaml:2: "},
		"no key":                        {[]string{"gate", run, "--budget", b, "--verify-with", filepath.Join(run, "none")}, "none"},
	} {
		if text := said(t, 2, c.args...); !strings.Contains(text, c.want) || strings.Contains(text, "PASS") {
			t.Errorf("%s, want %q:\n%s", name, c.want, text)
		}
	}
}

// Rules can name each scenario that a record may have, also that of the watch of a cluster, and no other.
func TestRulesNameScenariosOfAllRecords(t *testing.T) {
	for _, c := range []struct {
		scenario string
		known    bool
	}{{"rollout", true}, {"timeline", true}, {"probe", true}, {"watch", true}, {"wach", false}} {
		file := testfiles.Write(t, t.TempDir(), "budget.yaml", []byte("rules:\n- {scenario: "+c.scenario+", dropped: 1}\n"))
		cmd := gateCommand()
		cmd.SetContext(t.Context())
		if _, err := budgetOfGate(cmd, file); (err == nil) != c.known {
			t.Errorf("a rule for the scenario %s: %v", c.scenario, err)
		}
	}
}

// The text of a comparison has one form: --verbose is refused there, and nothing is written.
func TestComparisonsHaveNoLongForm(t *testing.T) {
	dir := comparison(t, gateClasses, "old", "also-old")
	before := filesOf(t, dir)
	for _, command := range []string{"report", "gate"} {
		if text := said(t, exitUsage, command, dir, "--verbose"); !strings.Contains(text, "name the folder of one of its runs") {
			t.Errorf("hitless %s: %s", command, text)
		}
	}
	if after := filesOf(t, dir); !maps.Equal(before, after) {
		t.Error("the folder has changed")
	}
}

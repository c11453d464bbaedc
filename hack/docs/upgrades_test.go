//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/hack/scripttest"
	"github.com/hitless/hitless/reports/compare"
)

// newUpgrading is a tree for hack/upgrades.sh. Its hitless ends each row with exit code 0 and a result, except for those of cases, a part of a
// shell's case.
func newUpgrading(t *testing.T, cases string) scripttest.Tree {
	t.Helper()
	return scripttest.New(t, "rows.sh upgrades.sh", map[string]string{
		"hitless": `if [ "$1 $2" = "results keep" ]; then cp "$3/compare.json" "$4"; exit; fi
echo hitless "$@" >> commands; out=$*; out=${out##* --out }
case $out in ` + cases + ` esac
mkdir -p "$out"; echo "$*" > "$out/compare.json"; exit ${code:-0}
`, "go": "echo \"$@\" >> docs-made\n"})
}

// upgrade runs the script. It returns the exit code, the output, and the names of the rows with a result.
func upgrade(t *testing.T, s scripttest.Tree, variables ...string) (code int, out string, results []string) {
	t.Helper()
	code, out = s.Run(variables, "upgrades.sh")
	files, err := filepath.Glob(filepath.Join(s.Dir, upgradesDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		results = append(results, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return code, out, results
}

// Each row of the page is run, as an upgrade in its mode, beside the same steps without an upgrade; the committed rows have its command.
func TestEachUpgradeIsRun(t *testing.T) {
	s := newUpgrading(t, "")
	code, out, results := upgrade(t, s)
	want := slices.Sorted(slices.Values(upgradeRows()))
	if code != 0 || !slices.Equal(results, want) {
		t.Fatalf("exit code %d; rows %q, want %q\n%s", code, results, want, out)
	}
	calls := calledIn(t, s)
	if len(calls) != len(want) {
		t.Errorf("%d calls for %d rows", len(calls), len(want))
	}
	for name, c := range calls {
		words := strings.Split(name, "-")
		from, mode, what := words[0], words[1], words[2]
		to := map[string]string{"v1.11": "v1.12.10", "v1.25": "v1.26.0", "v1.36": "v1.37.1"}[from]
		next := "kube-proxy@" + to + "/" + mode
		if c.Scenario != "upgrade" || len(c.Subjects) != 2 || !strings.HasPrefix(c.Subjects[0], "kube-proxy@"+from+".") || !strings.HasSuffix(c.Subjects[0], "/"+mode) ||
			c.Subjects[1] != next || c.Set["to"] != next || c.Flags["--against"] != next {
			t.Errorf("%s: %+v", name, c)
		}
		if back, roll := c.Set["back"] == "on", c.Set["roll"] == "on"; back != (what != "roll") || roll != (what != "open") || roll == (c.Set["lanes"] != "") {
			t.Errorf("%s: %v", name, c.Set)
		}
		committed, err := compare.Read(t.Context(), filepath.Join(top, upgradesDir, name+".json"))
		if err != nil {
			t.Errorf("no committed row %s: %v; `make upgrades` makes it", name, err)
			continue
		}
		wantCommand(t, name, c, committed.Command)
		for _, of := range committed.Subjects {
			for _, r := range of.Runs {
				if len(r.HistorySha256) != 64 {
					t.Errorf("%s: the run of %s has no hash of its history", name, of.Subject)
				}
			}
		}
	}
}

// A row without a result fails the script, and only that row.
func TestAnUpgradeThatFailsDoesNotStopTheOthers(t *testing.T) {
	s := newUpgrading(t, "*v1.11-ipvs-roll) echo no module; exit 2;; *v1.25-ipvs-open) code=1;; *v1.36-ipvs-open) code=3;; *v1.36-ipvs-back) exit 0;;")
	code, out, results := upgrade(t, s)
	missing := []string{"v1.11-ipvs-roll", "v1.36-ipvs-back"} // the second has no compare.json
	for _, name := range upgradeRows() {
		if slices.Contains(results, name) == slices.Contains(missing, name) {
			t.Errorf("%s has a result: %v", name, slices.Contains(results, name))
		}
	}
	if code != 1 || !strings.Contains(out, "no module") || !strings.Contains(out, "SUBSET="+strings.Join(missing, ",")) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if !s.Has("docs-made") {
		t.Error("the page was not made")
	}
	if err := os.Remove(filepath.Join(s.Dir, "commands")); err != nil {
		t.Fatal(err)
	}
	if upgrade(t, s); len(calledIn(t, s)) != len(missing) {
		t.Errorf("again: it runs %v, want only the rows without a result", calledIn(t, s))
	}
}

func TestASubsetOfTheUpgrades(t *testing.T) {
	s := newUpgrading(t, "")
	if code, out, results := upgrade(t, s, "SUBSET=v1.36-nftables-open,v1.11-ipvs-back"); code != 0 || !slices.Equal(results, []string{"v1.11-ipvs-back", "v1.36-nftables-open"}) {
		t.Errorf("exit code %d, rows %q:\n%s", code, results, out)
	}
	s = newUpgrading(t, "")
	if code, out, results := upgrade(t, s, "SUBSET=v1.36-nftables-open,v1.11-nftables-open"); code != 2 || len(results) != 0 || !strings.Contains(out, "v1.11-nftables-open") {
		t.Errorf("an unknown row: exit code %d, rows %q:\n%s", code, results, out)
	}
	s = newUpgrading(t, "*v1.25-iptables-open) exit 130;;")
	if code, _, results := upgrade(t, s); code != 130 || !slices.Contains(results, "v1.11-ipvs-back") || slices.Contains(results, "v1.25-iptables-roll") {
		t.Errorf("interrupted: exit code %d, rows %q", code, results)
	}
}

// The page has a row for each run and names the rows that were not run.
func TestThePageOfUpgradesNamesMissingRows(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, upgradesDir), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		t.Helper()
		c, err := compare.New("upgrade", []compare.Subject{
			{Subject: "kube-proxy@old/" + name, Runs: []compare.Run{{Seed: 1, Verdict: analysis.Fail, Dropped: 7}}},
			{Subject: "kube-proxy@new/" + name, Runs: []compare.Run{{Seed: 1, Verdict: analysis.Pass}}},
		}, compare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, upgradesDir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(compare.WriteJSON(f, c), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	rows := upgradeRows()
	for n := range len(rows) + 1 {
		if n > 0 {
			write(rows[n-1])
		}
		text, err := upgradesTable(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range rows {
			shown, missing := strings.Contains(text, "| kube-proxy@old/"+name+" | fail |"), strings.Contains(text, "- `"+name+"`")
			if shown != (i < n) || missing != (i >= n) {
				t.Errorf("with %d results: %s shown %v, missing %v", n, name, shown, missing)
			}
		}
		if strings.Contains(text, "not run yet") != (n < len(rows)) {
			t.Errorf("with %d results:\n%s", n, text)
		}
	}
	write("v1.10-ipvs-open")
	if _, err := upgradesTable(dir); err == nil {
		t.Error("a file of no row was accepted")
	}
}

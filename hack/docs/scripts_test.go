//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/hack/scripttest"
	"github.com/hitless/hitless/reports/compare"
)

// Each committed comparison has the command of its script's row, so that a page does not show another run than the script makes.
func TestCommittedComparisonsAreThoseOfTheirScripts(t *testing.T) {
	for script, folder := range map[string]string{
		"results.sh": ".", "disruptions.sh": "disruptions", "dataplanes.sh": "dataplanes", "kernels.sh": "kernels", "museum-tried.sh": "museum-tried",
		"upgrades.sh": "upgrades", "zero-loss.sh": "zero-loss", "minors.sh": "minors",
	} {
		files, err := committed(top, folder+"/*.json")
		if err != nil {
			t.Fatal(err)
		}
		rows := scriptRows(t, script)
		for _, file := range files {
			c, err := compare.Read(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			row, known := rows[strings.TrimSuffix(filepath.Base(file), ".json")]
			if !known {
				t.Errorf("%s: hack/%s has no such row", file, script)
				continue
			}
			wantCommand(t, file, row, c.Command)
		}
	}
}

// comparison is a command of `hitless compare`, independent of the order of its flags.
type comparison struct {
	Scenario   string
	Subjects   []string // the red twin is the last
	Kernels    []string
	Set, Flags map[string]string
}

// comparisonOf parses a command. The last of repeated flags counts.
func comparisonOf(t *testing.T, words []string) comparison {
	t.Helper()
	if len(words) < 3 || words[1] != "compare" || len(words)%2 == 0 {
		t.Fatalf("%q is not a comparison", words)
	}
	c := comparison{Scenario: words[2], Set: map[string]string{}, Flags: map[string]string{}}
	for i := 3; i < len(words); i += 2 {
		switch flag, value := words[i], words[i+1]; flag {
		case "--subject":
			c.Subjects = append(c.Subjects, value)
		case "--guest-kernel":
			c.Kernels = append(c.Kernels, value)
		case "--set":
			key, value, _ := strings.Cut(value, "=")
			c.Set[key] = value
		case "--out":
		default:
			c.Flags[flag] = value
		}
	}
	return c
}

// wantCommand fails the test if the command of a committed file is not that of its script.
func wantCommand(t *testing.T, file string, script comparison, command string) {
	t.Helper()
	if diff := cmp.Diff(script, comparisonOf(t, strings.Fields(command))); diff != "" {
		t.Errorf("the command of %s differs from that of its script (-script +file): %s", file, diff)
	}
}

// calledIn returns the comparisons in a file with a command in each line, by the names of their folders. There may be none yet.
func calledIn(t *testing.T, s scripttest.Tree) map[string]comparison {
	t.Helper()
	calls := map[string]comparison{}
	for line := range strings.Lines(s.Read("commands")) {
		words := strings.Fields(line)
		name := filepath.Base(words[slices.Index(words, "--out")+1])
		if _, twice := calls[name]; twice {
			t.Errorf("%s is run twice: %s", name, line)
		}
		calls[name] = comparisonOf(t, words)
	}
	return calls
}

// scriptRows returns the comparisons of a script in hack, by the names of its rows. The script runs with stand-ins for the programs that it calls.
func scriptRows(t *testing.T, name string) map[string]comparison {
	t.Helper()
	s := scripttest.New(t, "rows.sh "+name, map[string]string{
		"hitless": `case $1 in
build) printf 'kube-proxy\t%s\n' "$0" ;;
compare) echo hitless "$@" >> commands; while [ "$1" != --out ]; do shift; done; mkdir -p "$2"; echo > "$2/compare.json" ;;
results) cp "$3/compare.json" "$4" ;;
*) exit 2 ;;
esac
`, "go": "mkdir -p out/zero-loss\n"})
	if code, out := s.Run(nil, name); code != 0 {
		t.Fatalf("%s: exit code %d: %s", name, code, out)
	}
	rows, same := calledIn(t, s), map[string]string{}
	if len(rows) == 0 {
		t.Fatalf("%s runs no comparison", name)
	}
	for name, c := range rows {
		asks := fmt.Sprint(c)
		if other := same[asks]; other != "" {
			t.Errorf("%s and %s are one command: %s", name, other, asks)
		}
		same[asks] = name
	}
	return rows
}

// The page of upgrades names the rows that were not run yet, so that it knows all rows of the script.
func TestUpgradeRowsAreThoseOfTheirScript(t *testing.T) {
	if diff := cmp.Diff(scripttest.Rows(t, "upgrades.sh"), upgradeRows()); diff != "" {
		t.Errorf("the rows of hack/upgrades.sh differ from upgradeRows (-script +page): %s", diff)
	}
}

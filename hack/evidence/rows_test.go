package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rowsIn returns the rows that a script lists.
func rowsIn(t *testing.T, script string) []string {
	t.Helper()
	cmd := exec.Command(script)
	cmd.Env = append(os.Environ(), "LIST=1", "SUBSET=", "STALE=", "FORCE=", "RUNS=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("LIST=1 %s: %v", script, err)
	}
	return strings.Fields(string(out))
}

// A script whose rows are steps has a step for each row, so that a new row is planned before it has a file.
func TestEachRowOfADividedScriptIsAStep(t *testing.T) {
	t.Chdir("../..")
	planned := map[string][]string{}
	for _, s := range steps {
		if s.row != "" {
			planned[s.script] = append(planned[s.script], s.row)
		}
	}
	if len(planned) == 0 {
		t.Fatal("no script is divided")
	}
	for script, rows := range planned {
		want := rowsIn(t, script)
		slices.Sort(want)
		slices.Sort(rows)
		if !slices.Equal(rows, want) {
			t.Errorf("the steps of %s are %q, its rows %q", script, rows, want)
		}
	}
}

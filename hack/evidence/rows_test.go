//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// A script whose rows are steps has a step for each row, so that a new row is planned before it has a file.
func TestEachRowOfADividedScriptIsAStep(t *testing.T) {
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
		want := scripttest.Rows(t, filepath.Base(script))
		slices.Sort(want)
		slices.Sort(rows)
		if !slices.Equal(rows, want) {
			t.Errorf("the steps of %s are %q, its rows %q", script, rows, want)
		}
	}
}

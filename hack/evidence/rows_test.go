//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"
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
		name := filepath.Base(script)
		code, out := scripttest.New(t, "rows.sh "+name, nil).Run([]string{"LIST=1"}, name)
		want := strings.Fields(out)
		slices.Sort(want)
		slices.Sort(rows)
		if code != 0 || !slices.Equal(rows, want) {
			t.Errorf("the steps of %s are %q, its rows %q (exit code %d)", script, rows, want, code)
		}
	}
}

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
)

var update = flag.Bool("update", false, "write the README's table from docs/results")

const (
	tableBegin = "<!-- The table below is made by `make results`. -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// The README claims nothing that was not measured: its table is the one of the committed comparisons.
func TestTheReadmeHasTheCommittedResults(t *testing.T) {
	files, err := filepath.Glob("../../docs/results/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no committed comparisons in docs/results: %v", err)
	}
	var all []*reports.Comparison
	for _, file := range files {
		c, err := reports.ReadComparison(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Subjects {
			for _, r := range s.Runs {
				if len(r.HistorySha256) != 64 {
					t.Errorf("%s: the run of %s with seed %d has no hash of its history", file, s.Subject, r.Seed)
				}
			}
		}
		all = append(all, c)
	}
	var table bytes.Buffer
	if err := reports.WriteResults(&table, all); err != nil {
		t.Fatal(err)
	}
	const readme = "../../README.md"
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	old, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table: it stands between %q and %q", readme, tableBegin, tableEnd)
	}
	if want := "\n" + table.String() + "\n"; old != want {
		if !*update {
			t.Fatalf("the README's table is not that of docs/results; `go test ./cmd/hitless -run Readme -update` writes it")
		}
		if err := os.WriteFile(readme, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

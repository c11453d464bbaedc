package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
)

var update = flag.Bool("update", false, "write the README's table and picture from docs/results")

const (
	tableBegin = "<!-- The table below is made by `make results`. -->\n"
	tableEnd   = "<!-- end of the table -->\n"

	pictureBegin = "<!-- The picture below is made by `make results`. -->\n"
	pictureEnd   = "<!-- end of the picture -->\n"
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
	readmeHolds(t, tableBegin, "\n"+table.String()+"\n", tableEnd)
}

// Its picture is drawn from a run, too: the first of the comparison beside it, which has the hash of the run's history.
func TestTheReadmeHasTheCommittedPicture(t *testing.T) {
	picture, err := os.ReadFile("../../docs/results/rollout.lanes.txt")
	if err != nil {
		t.Fatal(err)
	}
	c, err := reports.ReadComparison("../../docs/results/rollout.json")
	if err != nil {
		t.Fatal(err)
	}
	run := c.Subjects[0].Runs[0]
	if dropped := strings.Count(strings.ReplaceAll(string(picture), ",", ""), strconv.Itoa(run.Dropped)+" of "); run.Dropped == 0 || dropped != 1 {
		t.Errorf("the picture is not of the first run of rollout.json, which dropped %d connections; `make results` draws it again", run.Dropped)
	}
	readmeHolds(t, pictureBegin, "\n```\n"+string(picture)+"```\n\n", pictureEnd)
}

// readmeHolds checks a part of the README, or writes it with -update.
func readmeHolds(t *testing.T, begin, want, end string) {
	t.Helper()
	const readme = "../../README.md"
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	old, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place for what stands between %q and %q", readme, begin, end)
	}
	if old == want {
		return
	}
	if !*update {
		t.Fatalf("the README has not what is committed in docs/results between %q and %q; `go test ./cmd/hitless -run Readme -update` writes it", begin, end)
	}
	if err := os.WriteFile(readme, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

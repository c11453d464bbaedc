package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

var update = flag.Bool("update", false, "write the tables and the picture of README.md and of docs from docs/results")

const (
	readme      = "../../README.md"
	disruptions = "../../docs/disruptions.md"
	nightly     = "../../docs/nightly.md"

	tableEnd = "<!-- end of the table -->\n"

	pictureBegin = "<!-- The picture below is made by `make results`. -->\n"
	pictureEnd   = "<!-- end of the picture -->\n"
)

// tableBegin is what stands before the table that a target of make writes.
func tableBegin(target string) string {
	return "<!-- The table below is made by `make " + target + "`. -->\n"
}

// The README claims nothing that was not measured: its table is the one of the committed comparisons.
func TestTheReadmeHasTheCommittedResults(t *testing.T) {
	holds(t, readme, tableBegin("results"), tableOf(t, "../../docs/results/*.json", reports.WriteResults), tableEnd)
}

// Nor does the page of the disruptions, whose table has each committed run.
func TestTheDocsHaveTheCommittedRuns(t *testing.T) {
	holds(t, disruptions, tableBegin("disruptions"), tableOf(t, "../../docs/results/disruptions/*.json", reports.WriteRuns), tableEnd)
}

// Nor does the page of the night's suites, each row of which can be repeated.
func TestTheDocsHaveTheNight(t *testing.T) {
	var all []*suites.Joint
	for _, file := range committed(t, "../../docs/results/suites/*.json") {
		j, err := suites.ReadJoint(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range j.Runs {
			if len(r.HistorySha256) != 64 || r.Command == "" {
				t.Errorf("%s: the run of %s in %s has no hash of its history, or no command", file, r.Subject, r.Scenario)
			}
		}
		all = append(all, j)
	}
	var table bytes.Buffer
	if err := suites.WriteTable(&table, all); err != nil {
		t.Fatal(err)
	}
	holds(t, nightly, tableBegin("nightly"), "\n"+table.String()+"\n", tableEnd)
}

// committed are the results in files; none is not enough.
func committed(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no committed results in %s: %v", pattern, err)
	}
	return files
}

// tableOf is the table of committed comparisons. What has no hash of its history cannot be repeated, and is no result.
func tableOf(t *testing.T, pattern string, write func(io.Writer, []*reports.Comparison) error) string {
	t.Helper()
	var all []*reports.Comparison
	for _, file := range committed(t, pattern) {
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
	if err := write(&table, all); err != nil {
		t.Fatal(err)
	}
	return "\n" + table.String() + "\n"
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
	holds(t, readme, pictureBegin, "\n```\n"+string(picture)+"```\n\n", pictureEnd)
}

// holds checks a part of a page, or writes it with -update.
func holds(t *testing.T, page, begin, want, end string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	old, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place for what stands between %q and %q", page, begin, end)
	}
	if old == want {
		return
	}
	if !*update {
		t.Fatalf("%s has not what is committed in docs/results between %q and %q; `go test ./cmd/hitless -run Committed -update` writes it", page, begin, end)
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports/compare"
)

const top = "../.."

// The pages and pictures contain exactly the committed results.
func TestGeneratedPagesAreUpToDate(t *testing.T) {
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, p := range parts {
		files[p.file] = true
	}
	if len(pages) != len(files)+5 {
		t.Errorf("%d pages for %d files with parts, a schema and 4 pictures", len(pages), len(files))
	}
	for _, p := range pages {
		have, err := os.ReadFile(filepath.Join(top, p.file))
		if err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(string(have), string(p.text)); diff != "" {
			t.Errorf("%s is out of date; run `make docs` (-committed +generated):\n%s", p.file, diff)
		}
	}
}

// A page without its markers, or without results, is an error and not an empty table.
func TestGenerateNeedsMarkersAndResults(t *testing.T) {
	dir := t.TempDir()
	if _, err := generate(dir); err == nil {
		t.Error("generate succeeded without pages")
	}
	if _, err := committed(dir, "*.json"); err == nil {
		t.Error("no results were accepted")
	}
}

// Every committed run has the hash of its history, so that a repetition can be compared.
func TestCommittedRunsHaveTheirHash(t *testing.T) {
	for _, pattern := range []string{"*.json", "disruptions/*.json", "minors/*.json", "kernels/*.json", "dataplanes/*.json", "zero-loss/*.json", "museum-tried/*.json"} {
		all, err := comparisons(top, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			for _, s := range c.Subjects {
				for _, r := range s.Runs {
					if len(r.HistorySha256) != 64 {
						t.Errorf("%s: the run of %s with seed %d has no hash of its history", c.Command, s.Subject, r.Seed)
					}
				}
			}
		}
	}
	all, err := suiteResults(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range all {
		for _, r := range j.Runs {
			if len(r.HistorySha256) != 64 || r.Command == "" {
				t.Errorf("%s: the run of %s in %s has no hash of its history, or no command", j.Suite, r.Subject, r.Scenario)
			}
		}
	}
}

// The drawing in text is of the run that README.md shows.
func TestTextPictureShowsCommittedRun(t *testing.T) {
	picture, err := os.ReadFile(filepath.Join(top, "docs/results/rollout.lanes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := analysis.Read(filepath.Join(top, picturedReport))
	if err != nil {
		t.Fatal(err)
	}
	counts := strconv.Itoa(r.Totals.Dropped) + " of " + strconv.Itoa(r.Totals.Attempts) + " "
	if n := strings.Count(strings.ReplaceAll(string(picture), ",", ""), counts); r.Totals.Dropped == 0 || n != 1 {
		t.Errorf("the drawing in text is not of the run in %s, with its %q connections; run `make results`", picturedReport, counts)
	}
}

// README.md shows a failed rollout with the first subject of comparisons.md, with its proof and its cause.
func TestPictureShowsCommittedRun(t *testing.T) {
	r, err := analysis.Read(filepath.Join(top, picturedReport))
	if err != nil {
		t.Fatal(err)
	}
	c, err := compare.Read(t.Context(), filepath.Join(top, "docs/results/rollout.json"))
	if err != nil {
		t.Fatal(err)
	}
	subject := r.Subject.Name + "@" + r.Subject.Version + "/" + r.Subject.Mode
	if r.Verdict != analysis.Fail || r.Totals.Dropped == 0 || r.Unexplained.Count > 0 || r.DetectionFloor.Ms == nil || subject != c.Subjects[0].Subject || r.Run.Scenario != c.Scenario ||
		r.Totals.Attempts != c.Subjects[0].Runs[0].Attempts || r.Totals.Dropped != c.Subjects[0].Runs[0].Dropped {
		t.Errorf("the pictured run of %s in %s: %s, %d dropped, %d unexplained", subject, r.Run.Scenario, r.Verdict, r.Totals.Dropped, r.Unexplained.Count)
	}
	svg, err := os.ReadFile(filepath.Join(top, "docs/images/rollout-light.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"rollout 1<", "pod on node-1 terminating", "load balancer: node-2<", strconv.Itoa(r.Totals.Dropped) + " of ", `class="dropped"`} {
		if !strings.Contains(string(svg), word) {
			t.Errorf("the picture lacks %q", word)
		}
	}
}

// A page is replaced in one step: who has the old file open reads it to its end.
func TestPagesAreReplacedInOneStep(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "a.md"), filepath.Join(dir, "old")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o644), os.Link(file, link)); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, []page{{"a.md", []byte("new")}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "new", link: "old"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s has %q, want %q: %v", name, text, want, err)
		}
	}
}

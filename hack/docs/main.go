// Command docs writes the pictures of README.md and the tables and pictures of docs/ from the committed results in docs/results and from the code, and
// the kinds of events in analysis/schema.json. It is run from the top of the tree, by `make docs`. Its tests fail when a file is out of
// date. `docs rolling-update DIR PROXY` first takes the results of hack/upstream-rolling-update.sh from a folder.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

func main() {
	if err := renew(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func renew(args []string) error {
	switch {
	case len(args) == 0:
	case len(args) == 3 && args[0] == "rolling-update":
		if err := takeRollingRun(".", args[1], args[2]); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%q are no arguments: none, or `rolling-update DIR PROXY`", args)
	}
	pages, err := generate(".")
	if err != nil {
		return err
	}
	return write(".", pages)
}

// A page is a file of the tree with its generated parts renewed.
type page struct {
	file string // relative to the top of the tree
	text []byte
}

// A part is the text between two markers of a page.
type part struct {
	file, name string // the markers name it
	text       func(top string) (string, error)
}

var parts = slices.Concat(tables, originParts())

var tables = []part{
	{"docs/watching-an-upgrade.md", "watch-roles", fileOf("deploy/watch/role.yaml", "yaml")},
	{"docs/results/comparisons.md", "comparisons", tableOf("*.json", compare.WriteResults)},
	{"docs/results/disruptions.md", "disruptions", tableOf("disruptions/*.json", compare.WriteRuns)},
	{"docs/results/kube-proxy-versions.md", "minors", tableOf("minors/*.json", compare.WriteRuns)},
	{"docs/results/upgrades.md", "upgrades", upgradesTable},
	{"docs/results/kernels.md", "kernels", tableOf("kernels/*.json", compare.WriteRuns)},
	{"docs/results/dataplanes.md", "dataplanes", tableOf("dataplanes/*.json", compare.WriteRuns)},
	{"docs/museum.md", "museum", museumList},
	{"docs/results/museum.md", "museum-results", museumTable},
	{"docs/results/museum.md", "museum-kills", museumKills},
	{"docs/results/museum-tried.md", "museum-tried", tableOf("museum-tried/*.json", compare.WriteRuns)},
	{"docs/results/museum-subjects.md", "current-bugs", currentBugs},
	{"docs/results/museum-subjects.md", "bug-versions", bugVersions},
	{"docs/results/verified.md", "verified", verifiedTable},
	{"docs/results/upstream-rolling-update.md", "rolling", rollingTable},
	{"docs/results/first-seed.md", "first-seed", firstSeedTable},
	{"docs/results/zero-loss.md", "zero-loss", tableOf("zero-loss/*.json", compare.WriteResults)},
	{"docs/results/suites.md", "jobs", jobsTable},
	{"docs/results/suites.md", "suites", suitesTable},
	{"docs/results/conformance.md", "conformance-matrix", conformanceTable},
	{"docs/results/kill-score.md", "kill-score", killScoreTable},
	{"docs/results/proxier-cost.md", "bench-proxier", benchTables},
	{"docs/reports.md", "lanes", lanesPicture},
	{"docs/thousand-nodes.md", "fleets", fleetTable},
	{"docs/parameters.md", "parameters", parameterTables},
	{"docs/adding-a-scenario.md", "capabilities", capabilityTable},
	{"docs/adding-an-event.md", "kinds", kindTable},
	{"docs/measuring.md", "proofs", proofTable},
	{"docs/testing.md", "tested", testedTable},
}

// picturedReport is the report of the run that README.md shows.
const picturedReport = "docs/results/picture/report.json"

// markers are the lines around a generated part.
func (p part) markers() (begin, end string) {
	return "<!-- begin " + p.name + ": written by `make docs` -->\n", "<!-- end " + p.name + " -->\n"
}

// generate returns all files with generated parts, and the pictures, with their current content.
func generate(top string) ([]page, error) {
	var pages []page
	for _, p := range parts {
		at := slices.IndexFunc(pages, func(have page) bool { return have.file == p.file }) // a page may have several parts
		if at < 0 {
			text, err := os.ReadFile(filepath.Join(top, p.file))
			if err != nil {
				return nil, err
			}
			at, pages = len(pages), append(pages, page{p.file, text})
		}
		var err error
		if pages[at].text, err = p.renewed(top, string(pages[at].text)); err != nil {
			return nil, err
		}
	}
	schema, err := schemaWithKinds(top)
	if err != nil {
		return nil, err
	}
	pictures, err := pictures(top)
	return append(append(pages, schema), pictures...), err
}

// renewed is a page's text with the part as it should be.
func (p part) renewed(top, text string) ([]byte, error) {
	want, err := p.text(top)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", p.name, p.file, err)
	}
	begin, end := p.markers()
	before, rest, begins := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return nil, fmt.Errorf("%s has no lines %q and %q", p.file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return []byte(before + begin + "\n" + want + "\n" + end + after), nil
}

// write writes the pages that differ from their files, and prints their names.
func write(top string, pages []page) error {
	for _, p := range pages {
		file := filepath.Join(top, p.file)
		if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, p.text) {
			continue
		}
		if err := cache.WriteFile(file, p.text); err != nil {
			return err
		}
		fmt.Println(p.file)
	}
	return nil
}

// committed lists the results in files of docs/results.
func committed(top, pattern string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(top, "docs/results", pattern))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("docs/results has no %s", pattern)
	}
	return files, err
}

func comparisons(top, pattern string) (all []*compare.Comparison, err error) {
	files, err := committed(top, pattern)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		c, err := compare.Read(context.Background(), file)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// fileOf shows a file of the tree, as code of a language.
func fileOf(file, language string) func(top string) (string, error) {
	return func(top string) (string, error) {
		data, err := os.ReadFile(filepath.Join(top, file))
		return fmt.Sprintf("```%s\n%s```\n", language, data), err
	}
}

// tableOf returns the table of committed comparisons.
func tableOf(pattern string, write func(io.Writer, []*compare.Comparison) error) func(string) (string, error) {
	return func(top string) (string, error) {
		all, err := comparisons(top, pattern)
		if err != nil {
			return "", err
		}
		var table bytes.Buffer
		err = write(&table, all)
		return table.String(), err
	}
}

func suiteResults(top string) (all []*compare.Suite, err error) {
	files, err := committed(top, "suites/*.json")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		r, err := compare.ReadSuite(context.Background(), file)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// jobsTable is the table of the jobs of the nightly run.
func jobsTable(top string) (string, error) {
	all, err := results.ReadJobs(context.Background(), filepath.Join(top, resultsDir, results.JobsFile))
	if err != nil || len(all.Jobs) == 0 {
		return "No nightly run is committed.\n", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %s have run.\n\n", len(all.Jobs), units.Plural(all.Of, "job"))
	text.WriteString("| job | exit code | wall time | program | began |\n|---|---:|---:|---|---|\n")
	for _, j := range all.Jobs {
		fmt.Fprintf(&text, "| %s | %d | %s | `%.12s…` | %s |\n", j.Name, j.ExitCode, units.Length(float64(j.Seconds)), j.Program, j.Made.Started)
	}
	return text.String(), nil
}

func suitesTable(top string) (string, error) {
	all, err := suiteResults(top)
	if err != nil {
		return "", err
	}
	var table bytes.Buffer
	err = compare.WriteSuites(&table, all)
	return table.String(), err
}

// lanesPicture is the committed output of `hitless report DIR --format lanes`.
func lanesPicture(top string) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, "docs/results/rollout.lanes.txt"))
	return "```\n" + string(text) + "```\n", err
}

// pictures returns the pictures of README.md and of upstream's rolling update.
func pictures(top string) (all []page, err error) {
	r, err := analysis.Read(filepath.Join(top, picturedReport))
	if err != nil {
		return nil, err
	}
	rolling, err := rollingPicture(top)
	if err != nil {
		return nil, err
	}
	for _, theme := range []reports.Theme{reports.ThemeLight, reports.ThemeDark} {
		for name, p := range map[string]reports.Picture{"rollout": reports.PictureOf(r), "upstream-rolling-update": rolling} {
			var b bytes.Buffer
			if err := reports.WriteSVG(&b, p, theme); err != nil {
				return nil, err
			}
			all = append(all, page{fmt.Sprintf("docs/images/%s-%s.svg", name, theme), b.Bytes()})
		}
	}
	return all, nil
}

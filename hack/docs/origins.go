package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/units"
)

// resultsDir has the committed results.
const resultsDir = "docs/results"

// origins are the pages that say what made their results, with patterns of these files below resultsDir, separated by spaces.
var origins = []struct{ page, patterns string }{
	{"docs/results/comparisons.md", "*.json"},
	{"docs/results/disruptions.md", "disruptions/*.json"},
	{"docs/results/kube-proxy-versions.md", "minors/*.json"},
	{"docs/results/upgrades.md", "upgrades/*.json"},
	{"docs/results/kernels.md", "kernels/*.json"},
	{"docs/results/dataplanes.md", "dataplanes/*.json"},
	{"docs/results/museum.md", "museum/*.json"},
	{"docs/results/museum-subjects.md", "museum-subjects/*.json"},
	{"docs/results/museum-tried.md", "museum-tried/*.json"},
	{"docs/results/verified.md", "verified/*.json"},
	{"docs/results/zero-loss.md", "zero-loss/*.json"},
	{"docs/results/first-seed.md", "first-seed/*.json"},
	{"docs/results/suites.md", "suites/*.json nightly/*.json"},
	{"docs/results/conformance.md", "conformance/*/*.yaml"},
	{"docs/results/kill-score.md", "kills/mutants.json"},
	{"docs/results/proxier-cost.md", "bench/*.json"},
	{"docs/upstream-e2e.md", "upstream-e2e/*.tsv"},
	{"docs/results/upstream-rolling-update.md", "upstream-rolling-update/*.json"},
}

// cited are the pages whose text relies on results, with patterns of their files. They name the programs in a sentence.
var cited = []struct{ page, patterns string }{
	{"docs/conformance.md", "conformance/*/*.yaml kills/mutants.json"},
	{"docs/measuring.md", "suites/*.json verified/*.json"},
	{"docs/museum.md", "museum/*.json museum-subjects/*.json"},
	{"docs/proxier.md", "zero-loss/*.json bench/*.json"},
	{"docs/subjects.md", "dataplanes/*.json minors/*.json"},
}

// originParts are the tables and sentences of what made the results of each page.
func originParts() (all []part) {
	for _, c := range cited {
		all = append(all, part{c.page, "programs", func(top string) (string, error) {
			rows, err := committedRows(context.Background(), top, c.patterns)
			return programsText(rows), err
		}})
	}
	for _, o := range origins {
		all = append(all, part{o.page, "origins", func(top string) (string, error) {
			rows, err := committedRows(context.Background(), top, o.patterns)
			if len(rows) == 0 {
				return "No result is committed.\n", err
			}
			return results.Origins(rows), err
		}})
	}
	return all
}

// programsText names the program that made most of some rows.
func programsText(rows []results.Row) string {
	programs := results.Programs(rows)
	if len(programs) == 0 {
		return "No committed result tells which program made it.\n"
	}
	of := func(program string) (n int) {
		for _, r := range rows {
			if r.Program == program {
				n++
			}
		}
		return n
	}
	most := slices.MaxFunc(programs, func(a, b string) int { return cmp.Compare(of(a), of(b)) })
	if of(most) == len(rows) {
		return fmt.Sprintf("The program `%.12s…` made all %s rows on the result pages linked here.\n", most, units.Thousands(len(rows)))
	}
	return fmt.Sprintf("The result pages linked here have %s rows. The program `%.12s…` made %s of them. Other programs made the others, or their files do not say.\n", units.Thousands(len(rows)), most, units.Thousands(of(most)))
}

// committedRows are those of the committed files of some patterns; none where `make` has not written any yet.
func committedRows(ctx context.Context, top, patterns string) (rows []results.Row, err error) {
	dir := filepath.Join(top, resultsDir)
	for _, pattern := range strings.Fields(patterns) {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			continue
		}
		some, err := results.Read(ctx, dir, pattern)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

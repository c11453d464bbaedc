package main

import (
	"context"
	"path/filepath"

	"github.com/hitless/hitless/internal/results"
)

// resultsDir has the committed results.
const resultsDir = "docs/results"

// origins are the pages that say what made their results, with a pattern of these files below resultsDir.
var origins = []struct{ page, pattern string }{
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
	{"docs/results/suites.md", "suites/*.json"},
	{"docs/results/conformance.md", "conformance/*/*.yaml"},
	{"docs/results/kill-score.md", "kills/mutants.json"},
	{"docs/results/proxier-cost.md", "bench/*.json"},
	{"docs/upstream-e2e.md", "upstream-e2e/*.tsv"},
	{"docs/results/upstream-rolling-update.md", "upstream-rolling-update/*.json"},
}

// originParts are the tables of what made the results of each page.
func originParts() (all []part) {
	for _, o := range origins {
		all = append(all, part{o.page, "origins", func(top string) (string, error) {
			rows, err := committedRows(context.Background(), top, o.pattern)
			if len(rows) == 0 {
				return "No result is committed.\n", err
			}
			return results.Origins(rows), err
		}})
	}
	return all
}

// committedRows are those of the committed files of a pattern; none where `make` has not written any yet.
func committedRows(ctx context.Context, top, pattern string) ([]results.Row, error) {
	dir := filepath.Join(top, resultsDir)
	if files, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(files) == 0 {
		return nil, err
	}
	return results.Read(ctx, dir, pattern)
}

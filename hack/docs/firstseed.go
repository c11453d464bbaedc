package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

// soakFile is the comparison of hack/first-seed.sh.
const soakFile = "docs/results/first-seed/soak.json"

// firstSeedTable is a row for each soak, with the longest outage and its cause.
func firstSeedTable(top string) (string, error) {
	c, err := compare.Read(context.Background(), filepath.Join(top, soakFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "*Not measured yet*: no result of `make first-seed` is committed.\n", nil
	}
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	b.WriteString("| subject | seed | verdict | connections | dropped | delayed | longest outage | its begin | its cause | history |\n" +
		"|---|---:|---|---:|---:|---:|---:|---:|---|---|\n")
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			outage, at, cause := "-", "-", "-"
			if o := r.LongestOutage; o != nil {
				outage, at, cause = fmt.Sprintf("%.1f s", r.WorstGapMs/1e3), fmt.Sprintf("+%.3f s", o.At), reports.Cell(o.Cause)
			}
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | %s | %s | `%.12s` |\n", reports.Cell(s.Subject), r.Seed, r.Verdict, units.Thousands(r.Attempts),
				units.Thousands(r.Dropped), units.Thousands(r.Delayed), outage, at, cause, r.HistorySha256)
		}
	}
	return b.String(), nil
}

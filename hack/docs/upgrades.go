package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/reports/compare"
)

// upgradesDir has a comparison for each row of hack/upgrades.sh that was run.
const upgradesDir = "docs/results/upgrades"

// upgradeRows names the rows of hack/upgrades.sh, by the minor version before the upgrade, the mode and what is done.
func upgradeRows() (names []string) {
	for _, u := range []struct{ from, modes string }{
		{"v1.11", "iptables ipvs"}, {"v1.25", "iptables ipvs"}, {"v1.36", "iptables ipvs nftables"},
	} {
		for _, mode := range strings.Fields(u.modes) {
			for _, what := range []string{"open", "roll", "back"} {
				names = append(names, u.from+"-"+mode+"-"+what)
			}
		}
	}
	return names
}

// upgradesTable is the table of the rows that were run, and the names of those that were not. A file of no row is an error.
func upgradesTable(top string) (string, error) {
	files, err := filepath.Glob(filepath.Join(top, upgradesDir, "*.json"))
	if err != nil {
		return "", err
	}
	rows := upgradeRows()
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); !slices.Contains(rows, name) {
			return "", fmt.Errorf("%s is of no row of `make upgrades`; remove it", file)
		}
	}
	var all []*compare.Comparison
	var missing []string
	for _, name := range rows {
		c, err := compare.Read(context.Background(), filepath.Join(top, upgradesDir, name+".json"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return "", err
		default:
			all = append(all, c)
		}
	}
	var text bytes.Buffer
	if len(all) > 0 {
		if err := compare.WriteRuns(&text, all); err != nil {
			return "", err
		}
	}
	if len(missing) > 0 {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		fmt.Fprintf(&text, "%d of %d rows were not run yet:\n\n- `%s`\n", len(missing), len(rows), strings.Join(missing, "`\n- `"))
	}
	return text.String(), nil
}

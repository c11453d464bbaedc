package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/suites/conformance"
)

const conformanceDir = "docs/results/conformance"

// conformanceTable is the matrix of the committed reports of `make conformance-matrix`, and the specs that failed.
func conformanceTable(top string) (string, error) {
	files, err := filepath.Glob(filepath.Join(top, conformanceDir, "*", conformance.File))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no reports", conformanceDir)
	}
	if err != nil {
		return "", err
	}
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	all, err := conformance.ReadAll(context.Background(), dirs, nil)
	if err != nil {
		return "", err
	}
	m, err := conformance.NewMatrix(all)
	if err != nil {
		return "", err
	}
	return matrixTable(m) + failedSpecs(all), nil
}

// matrixTable has a row for each feature.
func matrixTable(m *conformance.Matrix) string {
	var text strings.Builder
	fmt.Fprintf(&text, "| feature | %s |\n|---|%s\n", strings.Join(m.Subjects, " | "), strings.Repeat("---|", len(m.Subjects)))
	for _, row := range m.Rows {
		fmt.Fprintf(&text, "| %s |", row.Feature)
		for _, c := range row.Cells {
			state := c.State
			if len(c.Failed) > 0 {
				state = fmt.Sprintf("**%d failed**", len(c.Failed))
			}
			fmt.Fprintf(&text, " %s |", state)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// failedSpecs has a row for each failed spec of each subject, with its first reason, and the numbers of each subject.
func failedSpecs(all []*conformance.Report) string {
	var text strings.Builder
	text.WriteString("\n| subject | failed spec | what it saw |\n|---|---|---|\n")
	for _, r := range all {
		for _, s := range r.Specs {
			if s.State == conformance.Failed {
				fmt.Fprintf(&text, "| %s | %s | %s |\n", r.Implementation.Subject, s.Name, strings.ReplaceAll(s.Reasons[0], "|", "\\|"))
			}
		}
	}
	text.WriteString("\n| subject | specs | passed | skipped | labels |\n|---|---:|---:|---:|---|\n")
	for _, r := range all {
		count := map[conformance.State]int{}
		for _, s := range r.Specs {
			count[s.State]++
		}
		labels := "all"
		if filter := r.Selected.Labels; filter != "" {
			labels = "`" + strings.ReplaceAll(filter, "|", "\\|") + "`"
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %d | %s |\n", r.Implementation.Subject, len(r.Specs), count[conformance.Passed], count[conformance.Skipped], labels)
	}
	return text.String()
}

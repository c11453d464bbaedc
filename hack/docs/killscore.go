package main

import (
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/suites/mutants"
)

// killScoreTable is the table of the committed rows of `make kill-score`.
func killScoreTable(top string) (string, error) {
	t, err := mutants.Read(filepath.Join(top, mutants.File))
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = t.WriteMarkdown(&text)
	return text.String(), err
}

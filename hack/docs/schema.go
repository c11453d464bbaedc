package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/analysis"
)

// schemaFile is the JSON Schema of report.json.
const schemaFile = "analysis/schema.json"

// schemaWithKinds returns the schema with the kinds of events that the code has.
func schemaWithKinds(top string) (page, error) {
	text, err := os.ReadFile(filepath.Join(top, schemaFile))
	if err != nil {
		return page{}, err
	}
	const begin, end = `"kind": {
            "enum": [
`, `
            ]`
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends || strings.Contains(after, begin) {
		return page{}, fmt.Errorf("%s does not have exactly one list of the kinds of events: %q, one kind a line, %q", schemaFile, begin, end)
	}
	var kinds []string
	for _, k := range analysis.EventKinds() {
		kinds = append(kinds, fmt.Sprintf("              %q", k))
	}
	return page{schemaFile, []byte(before + begin + strings.Join(kinds, ",\n") + end + after)}, nil
}

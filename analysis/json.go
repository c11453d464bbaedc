package analysis

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Schema is the JSON Schema (2020-12) of report.json.
//
//go:embed schema.json
var Schema []byte

// WriteJSON writes report.json: indented, fields in their fixed order, keys of maps sorted, with a newline at the end.
func WriteJSON(w io.Writer, r *Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Read reads a report.json of a version that this program knows.
func Read(file string) (*Report, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	return Parse(data, file)
}

// Parse reads a report.json of a version that this program knows; file is its name in errors.
func Parse(data []byte, file string) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading the report %s: %w (`hitless report` makes it again from the history)", file, err)
	}
	if r.SchemaVersion != Version {
		return nil, fmt.Errorf("the report %s has version %d; this program reads version %d", file, r.SchemaVersion, Version)
	}
	return &r, nil
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Each scenario has a section with its own keys.
func TestParameterTablesHaveEveryKey(t *testing.T) {
	text, err := parameterTables(top)
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split("\n"+text, "\n## ")
	for _, s := range scenarios.All() {
		found := false
		for _, section := range sections {
			name, rows, _ := strings.Cut(section, "\n")
			complete := name == s.Name || name == s.Name+" on a live cluster"
			for _, p := range s.Parameters {
				complete = complete && strings.Contains(rows, "\n| `"+p.Key+"` | "+valueText(p.Default)+" |")
			}
			found = found || complete
		}
		if !found {
			t.Errorf("no section has the keys of %s", s.Name)
		}
	}
}

// Every kind has a row with a meaning; a kind without a comment in the source is an error and not an empty cell.
func TestKindTableNeedsComments(t *testing.T) {
	text, err := kindTable(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range record.Kinds() {
		if !strings.Contains(text, "| `"+string(k)+"` | `") {
			t.Errorf("no row for %s", k)
		}
	}
	if strings.Contains(text, "|  |") || strings.Contains(text, "``") {
		t.Errorf("a cell is empty:\n%s", text)
	}
	source, err := os.ReadFile(filepath.Join(top, "record/bodies.go"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "record"), 0o755); err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(source), "// Skipped is a lane")
	_, after, ended := strings.Cut(rest, "\n")
	if !found || !ended {
		t.Fatal("record/bodies.go has no comment of Skipped")
	}
	for name, changed := range map[string]string{
		"another name":  strings.Replace(string(source), `Kind = "skipped"`, `Kind = "left-out"`, 1),
		"no Go":         "package",
		"a kind is out": strings.Replace(string(source), "func (Skipped) Kind() Kind", "func (Skipped) Other() Kind", 1),
		"no comment":    before + after,
	} {
		if err := os.WriteFile(filepath.Join(dir, "record/bodies.go"), []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := kindTable(dir); err == nil {
			t.Errorf("%s: the table was made", name)
		}
	}
}

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/results"
)

// program is a SHA-256 as pages name programs: whole, its start with an ellipsis, or its start after the word.
var program = regexp.MustCompile(`\b([0-9a-f]{64})\b|\b([0-9a-f]{8,63})…|\bprograms?\s+\x60([0-9a-f]{8,63})\x60`)

// unknownPrograms are the programs that a text names and rows do not have.
func unknownPrograms(text string, rows []results.Row) (unknown []string) {
	for _, m := range program.FindAllStringSubmatch(text, -1) {
		begin := m[1] + m[2] + m[3]
		if !slices.ContainsFunc(results.Programs(rows), func(p string) bool { return strings.HasPrefix(p, begin) }) {
			unknown = append(unknown, m[0])
		}
	}
	return unknown
}

// No page names a program that its files do not have. The twins do.
func TestPagesNameOnlyTheProgramsOfTheirFiles(t *testing.T) {
	rowsOf := map[string][]results.Row{}
	for _, o := range slices.Concat(origins, cited) {
		rows, err := committedRows(t.Context(), top, o.patterns)
		if err != nil {
			t.Fatal(err)
		}
		rowsOf[o.page] = rows
	}
	pages := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			name, _ := filepath.Rel(top, path)
			pages = append(pages, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(top, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range unknownPrograms(string(text), rowsOf[page]) {
			t.Errorf("%s names the program %s, and none of its files has it: take it out, and let `make docs` write what the files have", page, p)
		}
	}
	rows := []results.Row{{Origin: results.Origin{Program: strings.Repeat("ab", 32)}}}
	for text, unknown := range map[string]int{"by `abababababab…`": 0, "by " + strings.Repeat("ab", 32): 0, "the history `77d6989dddd9`": 0,
		"by `ea20c06becb2…`": 1, "by the program `ea20c06becb2`": 1, "by the program\n`abababababab`": 0, "by " + strings.Repeat("cd", 32) + " and `ababababcdab…`": 2} {
		if got := unknownPrograms(text, rows); len(got) != unknown {
			t.Errorf("%q names the unknown programs %q, want %d", text, got, unknown)
		}
	}
}

// Each page with a table of results says what made them.
func TestPagesOfResultsSayWhatMadeThem(t *testing.T) {
	for _, p := range tables {
		if strings.HasPrefix(p.file, resultsDir) && !slices.ContainsFunc(origins, func(o struct{ page, patterns string }) bool { return o.page == p.file }) {
			t.Errorf("%s has the table %s, and no table of what made it", p.file, p.name)
		}
	}
}

// Pages that rely on results name their program, and say so when there are several.
func TestPagesNameTheProgramOfTheirResults(t *testing.T) {
	row := func(letter string) results.Row {
		return results.Row{Origin: results.Origin{Program: strings.Repeat(letter, 64)}}
	}
	for want, rows := range map[string][]results.Row{
		"The program `aaaaaaaaaaaa…` made all 2 rows":                                           {row("a"), row("a")},
		"The result pages linked here have 3 rows. The program `bbbbbbbbbbbb…` made 2 of them.": {row("a"), row("b"), row("b")},
		"No committed result": {{}},
	} {
		if got := programsText(rows); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

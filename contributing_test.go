package hitless_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The package table of CONTRIBUTING.md has a row for each package tree and for each import rule.
func TestContributingListsThePackages(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| package | content |")
	table, _, ended := strings.Cut(table, "\n\n")
	if !found || !ended {
		t.Fatal("CONTRIBUTING.md has no package table")
	}
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z/]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed[m[1]] = true
			}
		}
	}
	for _, r := range rooms {
		if !listed[r.room] {
			t.Errorf("layout_test.go has a rule for %s, and CONTRIBUTING.md has no row for it", r.room)
		}
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		parts := strings.Split(filepath.ToSlash(path), "/")
		tree := parts[0]
		if tree == "internal" {
			tree = strings.Join(parts[:2], "/")
		}
		if len(parts) > 1 && tree != "docs" && tree != "out" && !listed[tree] {
			t.Errorf("%s: CONTRIBUTING.md has no row for %s", path, tree)
			listed[tree] = true // once is enough
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

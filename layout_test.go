// Package hitless_test checks rules for the whole repository: imports, pipelines, and tests that the documentation names.
package hitless_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hitless/hitless/"

// importRules lists for each package tree the trees of this project that it may import, and the reason for the limit.
var importRules = []struct {
	tree    string
	allowed []string
	reason  string
}{
	{"record", nil, "any program can read a record after the run"},
	{"reports", []string{"record", "internal/cache"}, "any program can analyse a history after the run"},
	{"internal/cache", nil, "every package may use it for files and locks"},
	{"probes", []string{"record", "reports", "probes", "internal/cache", "internal/clock"}, "the detector must not depend on the subject"},
	{"proxier", []string{"proxier"}, "the bundled proxier is an independent program"},
	{"observers", []string{"record"}, "the lab and live clusters share them"},
	{"lab", []string{"lab", "record", "observers", "internal/cache"}, "the lab contains no scenarios and no measurement"},
	{"cluster", []string{"record", "observers", "internal/clock"}, "the driver of live clusters needs no lab and contains no scenarios and no measurement"},
	{"scenarios", []string{"record", "reports"}, "the same steps run on the lab and on live clusters"},
}

func TestImports(t *testing.T) {
	for _, r := range importRules {
		err := filepath.WalkDir(r.tree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range f.Imports {
				name, _ := strconv.Unquote(spec.Path.Value)
				if inner, ours := strings.CutPrefix(name, module); ours && !inTrees(append(r.allowed, r.tree), inner) {
					t.Errorf("%s imports %s: %s", path, inner, r.reason)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func inTrees(trees []string, path string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") })
}

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
	for _, r := range importRules {
		if !listed[r.tree] {
			t.Errorf("layout_test.go has a rule for %s, and CONTRIBUTING.md has no row for it", r.tree)
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
			listed[tree] = true // report it once
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// place is where tests run.
type place int

const (
	inUnit place = iota
	inNamespaces
	inLabs
	inBrowser
	inNightly
	places
)

// tagPlaces are the build tags of tests, the ones that decide first.
var tagPlaces = []struct {
	tag string
	in  place
}{{"nightly", inNightly}, {"browser", inBrowser}, {"lab", inLabs}, {"netns", inNamespaces}}

// testedTable is the table of the places where each package has tests or specs. It has no numbers, which each new test would change.
func testedTable(top string) (string, error) {
	counts, err := testsByPlace(top)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("| package | unit | namespaces | VMs and other labs | browser | nightly |\n|---|---|---|---|---|---|\n")
	for _, pkg := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "| `%s` |", pkg)
		for _, n := range counts[pkg] {
			if n > 0 {
				text.WriteString(" yes |")
			} else {
				text.WriteString("  |")
			}
		}
		text.WriteString("\n")
	}
	return text.String(), nil
}

// testsByPlace counts the tests of each package, and the specs of suites. A spec that a loop makes counts once.
func testsByPlace(top string) (map[string][places]int, error) {
	counts := map[string][places]int{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != top && (d.Name() == "out" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(dir)
		n := counts[pkg]
		countTests(file, &n)
		if n != [places]int{} {
			counts[pkg] = n
		}
		return nil
	})
	return counts, err
}

func countTests(file *ast.File, n *[places]int) {
	in := placeOf(file)
	for _, decl := range file.Decls {
		f, is := decl.(*ast.FuncDecl)
		if is && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) && f.Name.Name != "TestMain" && !callsRunSpecs(f) {
			at := in
			if strings.HasPrefix(f.Name.Name, "TestNightly") {
				at = inNightly
			}
			n[at]++
		}
		if is && strings.HasPrefix(f.Name.Name, "labels") && namesNightly(f) {
			n[inNightly]++ // some of the specs that a loop makes
		}
	}
	if in == inLabs {
		countSpecs(file, false, n)
	}
}

// placeOf is the place of a file's tests, by the build tag that it needs.
func placeOf(file *ast.File) place {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() > file.Package || !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				continue
			}
			for _, p := range tagPlaces {
				if needsTag(expr, p.tag) {
					return p.in
				}
			}
		}
	}
	return inUnit
}

// needsTag reports whether a constraint names a tag that must be set.
func needsTag(expr constraint.Expr, tag string) bool {
	switch e := expr.(type) {
	case *constraint.TagExpr:
		return e.Tag == tag
	case *constraint.AndExpr:
		return needsTag(e.X, tag) || needsTag(e.Y, tag)
	}
	return false
}

func callsRunSpecs(f *ast.FuncDecl) (calls bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		id, is := n.(*ast.Ident)
		calls = calls || is && id.Name == "RunSpecs"
		return true
	})
	return calls
}

var (
	specContainers = []string{"Describe", "Context", "When", "DescribeTable", "DescribeTableSubtree"}
	specLeaves     = []string{"It", "Specify", "Entry"}
)

// countSpecs counts the specs below a node of a suite. The label Nightly of a container is that of its specs.
func countSpecs(below ast.Node, nightly bool, n *[places]int) {
	ast.Inspect(below, func(node ast.Node) bool {
		call, is := node.(*ast.CallExpr)
		if !is {
			return true
		}
		name, is := call.Fun.(*ast.Ident)
		if !is {
			return true
		}
		own := nightly || slices.ContainsFunc(call.Args, isNightly)
		switch {
		case slices.Contains(specContainers, name.Name):
			for _, arg := range call.Args {
				countSpecs(arg, own, n)
			}
			return false
		case slices.Contains(specLeaves, name.Name):
			if own {
				n[inNightly]++
			} else {
				n[inLabs]++
			}
			return false
		}
		return true
	})
}

func namesNightly(f *ast.FuncDecl) (names bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		arg, is := n.(ast.Expr)
		names = names || is && isNightly(arg)
		return true
	})
	return names
}

func isNightly(arg ast.Expr) bool {
	s, is := arg.(*ast.SelectorExpr)
	return is && s.Sel.Name == "Nightly"
}

package hitless_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The filters by which hack/lab-test.sh selects specs: those on this machine's kernel, in two suites; then all others, without the suite kernels.
var (
	filterHost = regexp.MustCompile(`(?m)^"\$\{test\[@\]\}" .* \./suites/kernels \./suites/selfcheck -ginkgo\.label-filter='host && !nightly'$`)
	filterRest = regexp.MustCompile(`"\$\{suites\[@\]/#/\./suites/\}" -ginkgo\.label-filter='!nightly && !host'`)
)

const (
	allSuites = `for suite in suites/*/; do`
	noKernels = `" ${suites[*]} kernels " != *" $name "*`
)

var (
	containers = []string{"Describe", "Context", "When", "DescribeTable", "DescribeTableSubtree"}
	leaves     = []string{"It", "Specify", "Entry"}
)

// isLabel reports whether an argument is one of these labels of package suites.
func isLabel(arg ast.Expr, names ...string) bool {
	s, is := arg.(*ast.SelectorExpr)
	if !is {
		return false
	}
	p, is := s.X.(*ast.Ident)
	return is && p.Name == "suites" && slices.Contains(names, s.Sel.Name)
}

// withoutLabel returns the positions of the specs that have none of the labels of package suites, and are in no container with one.
func withoutLabel(files *token.FileSet, within ast.Node, names ...string) (found []string) {
	ast.Inspect(within, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		name, is := call.Fun.(*ast.Ident)
		if !is || !slices.Contains(slices.Concat(containers, leaves), name.Name) {
			return true
		}
		if slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return isLabel(arg, names...) }) {
			return false
		}
		if slices.Contains(leaves, name.Name) {
			found = append(found, files.Position(call.Pos()).String())
		}
		return true
	})
	return found
}

// labelled returns where the label host is used, other than by Selected, which asks for it.
func labelled(files *token.FileSet, within ast.Node) (found []string) {
	add := func(n ast.Node) { found = append(found, files.Position(n.Pos()).String()) }
	ast.Inspect(within, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if isLabel(n, "Host") {
				add(n)
			}
		case *ast.CallExpr:
			if nameOf(n.Fun) == "Selected" {
				return false
			}
			if nameOf(n.Fun) == "Label" && slices.ContainsFunc(n.Args, func(arg ast.Expr) bool {
				text, is := arg.(*ast.BasicLit)
				return is && text.Value == `"host"`
			}) {
				add(n)
			}
		}
		return true
	})
	return found
}

// nameOf is the last name of a function.
func nameOf(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// Each spec that is not nightly is selected by one of the two calls in hack/lab-test.sh: those of the suite kernels by the label host, those of
// selfcheck by either, and those of the others by its absence.
func TestEachSpecIsSelectedInCI(t *testing.T) {
	data, err := os.ReadFile("hack/lab-test.sh")
	if err != nil {
		t.Fatal(err)
	}
	if script := string(data); !filterHost.MatchString(script) || !filterRest.MatchString(script) || !strings.Contains(script, allSuites) || !strings.Contains(script, noKernels) {
		t.Fatal("hack/lab-test.sh has other filters than this test knows")
	}
	files, specs := token.NewFileSet(), map[string]int{}
	paths, err := filepath.Glob("suites/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		suite := filepath.Base(filepath.Dir(path))
		specs[suite] += len(withoutLabel(files, file))
		switch suite {
		case "kernels":
			for _, at := range withoutLabel(files, file, "Host", "Nightly") {
				t.Errorf("%s: a spec without the label host, which hack/lab-test.sh does not run", at)
			}
		case "selfcheck":
		default:
			for _, at := range labelled(files, file) {
				t.Errorf("%s: the label host, with which hack/lab-test.sh runs specs of kernels and selfcheck only", at)
			}
		}
	}
	if specs["kernels"] < 3 || specs["selfcheck"] < 3 || len(specs) < 15 {
		t.Errorf("specs by suite: %v", specs)
	}
	deeper, err := filepath.Glob("suites/*/*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range deeper {
		if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), "RunSpecs(") {
			t.Errorf("%s is a suite in a folder that hack/lab-test.sh does not run: %v", path, err)
		}
	}
}

// The check itself can fail.
func TestSpecsWithoutALabelAreFound(t *testing.T) {
	files := token.NewFileSet()
	parse := func(text string) ast.Node {
		t.Helper()
		file, err := parser.ParseFile(files, "x.go", "package x\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	for text, want := range map[string]int{
		`var _ = Describe("a", suites.Host, func() { It("b", func() {}) })`:                                    0,
		`var _ = Describe("a", func() { It("b", suites.Nightly, func() {}); It("c", func() {}) })`:             1,
		`var _ = DescribeTable("a", func() {}, Entry("b", suites.Host), Entry("c", suites.Smoke), Entry("d"))`: 2,
		`var _ = It("a", func() {})`: 1,
	} {
		if found := withoutLabel(files, parse(text), "Host", "Nightly"); len(found) != want {
			t.Errorf("%s: %q, want %d", text, found, want)
		}
	}
	for text, want := range map[string]int{
		`var a = suites.Selected(suites.Host)`:                0,
		`var _ = It("a", suites.Host, func() {})`:             1,
		`var labels = suites.Host`:                            1,
		`var _ = It("a", Label("x", "host"), func() {})`:      1,
		`var _ = append(Label("x"), ginkgo.Label("host")...)`: 1,
	} {
		if found := labelled(files, parse(text)); len(found) != want {
			t.Errorf("%s: %q, want %d", text, found, want)
		}
	}
}

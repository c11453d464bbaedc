// Package hitless_test checks rules for the whole repository: imports, pipelines, and tests that the documentation names.
package hitless_test

import (
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hitless/hitless/"

// importRule lists what the packages below a directory may import of this project, besides each other. A package follows the
// rule of its longest directory. Tests may import what tests lists as well.
type importRule struct {
	tree    string
	imports []string
	tests   []string
	reason  string
}

// testHelpers are the packages that only tests import.
var testHelpers = []string{"record/recordtest", "internal/testfiles", "lab/replay/replaytest"}

// importRules show the flow in one direction: scenarios, probes, observers → record → analysis → reports.
var importRules = []importRule{
	{tree: "record", reason: "any program can read or write a record"},
	{tree: "observers", imports: []string{"record"}, reason: "the lab and live clusters share the observers"},
	{tree: "probes", imports: []string{"record", "internal/cache", "internal/clock", "internal/epoll"}, tests: []string{"analysis", "reports"},
		reason: "the detector depends neither on the subject nor on the analysis"},
	{tree: "probes/session", imports: []string{"record", "probes", "analysis", "reports", "internal/cache", "internal/version"}, reason: "a probe session ends with a report"},
	{tree: "probes/watch", imports: []string{"record", "probes", "analysis", "reports", "internal/cache", "internal/units"}, reason: "a watch writes a report for each period"},
	{tree: "scenarios", imports: []string{"record"}, reason: "the same steps run in the lab and on live clusters, and do not judge"},
	{tree: "scenarios/museum", imports: []string{"record", "scenarios", "analysis"}, reason: "the signature of a bug is checked in the report"},

	{tree: "analysis", imports: []string{"record", "internal/input", "internal/units"}, reason: "the verdict is a function of the record alone"},

	{tree: "reports", imports: []string{"record", "analysis", "reports/chart", "reports/page", "internal/cache", "internal/units"},
		reason: "formats only write what the analysis found"},
	{tree: "reports/chart", imports: []string{"record", "analysis", "internal/units"}, reason: "page and comparison share the drawings"},
	{tree: "reports/page", imports: []string{"record", "analysis", "reports/chart", "internal/units"}, reason: "formats only write what the analysis found"},
	{tree: "reports/compare", imports: []string{"record", "analysis", "reports", "reports/chart", "reports/page", "internal/cache", "internal/input", "internal/units"},
		reason: "a comparison only reads records and reports"},
	{tree: "reports/serve", imports: []string{"record", "analysis", "reports", "reports/compare", "internal/units"}, reason: "the server only reads the folders of runs"},

	{tree: "proxier", imports: []string{"internal/flags", "internal/input"}, reason: "the bundled proxier is an independent program; it reads flags and files by the same rule"},
	{tree: "lab", imports: []string{"record", "observers", "internal/cache", "internal/epoll", "internal/input"}, reason: "the lab contains neither scenarios nor measurement"},
	{tree: "cluster", imports: []string{"record", "observers", "internal/clock", "internal/input"}, reason: "the driver of live clusters needs no lab, and contains neither scenarios nor measurement"},

	{tree: "internal/cache", reason: "every package may use it for files and locks"},
	{tree: "internal/clock", reason: "every package may wait with it"},
	{tree: "internal/epoll", reason: "clients and backends wait for sockets in the same way"},
	{tree: "internal/flags", reason: "all commands follow one rule for flags"},
	{tree: "internal/input", reason: "every package may read a user's file with it"},
	{tree: "internal/progress", reason: "every part of a run may report progress"},
	{tree: "internal/version", imports: []string{"internal/cache"}, reason: "a record names the program that made it"},
	{tree: "internal/shard", imports: []string{"internal/cache", "internal/input", "internal/version"}, reason: "all calls with shards follow one rule"},
	{tree: "internal/units", reason: "analysis and all formats write numbers in the same way"},
	{tree: "internal/testfiles", reason: "tests of all packages may use it"},
	{tree: "internal/prober", imports: []string{"record", "probes", "scenarios", "internal/clock", "internal/progress"}, reason: "a probe worker needs no lab"},
	{tree: "internal/recording", imports: []string{"scenarios", "internal/cache"}, tests: []string{"record", "lab"}, reason: "a recording becomes a timeline"},
	{tree: "internal/clusterwatch", imports: []string{"record", "observers", "probes", "reports", "cluster"}, tests: []string{"analysis", "lab"},
		reason: "a watch of a cluster measures as a session does, and takes its causes from the observers of live runs"},
	{tree: "internal/bench", imports: []string{"record", "observers", "lab", "internal/clock"}, reason: "the benchmark measures proxies without probes"},
	{tree: "internal/routing", imports: []string{"record", "lab", "internal/units"}, reason: "checks of Services record what they saw, and judge no proxy"},
	{tree: "internal/guest", imports: []string{"record", "observers", "probes", "scenarios", "analysis", "proxier", "lab", "internal/bench", "internal/clock", "internal/prober", "internal/progress", "internal/routing"},
		reason: "the runner inside of the lab writes a record and no report"},
	{tree: "internal/site", imports: []string{"record", "observers", "probes", "scenarios", "analysis", "reports", "lab", "cluster", "internal/bench", "internal/cache", "internal/guest", "internal/input", "internal/prober", "internal/progress", "internal/version"},
		reason: "a site prepares, drives and collects, and does not know which scenario runs"},
	{tree: "internal/run", imports: []string{"record", "scenarios", "analysis", "reports", "lab", "cluster", "internal/bench", "internal/cache", "internal/guest", "internal/input", "internal/progress", "internal/recording", "internal/shard", "internal/site", "internal/version"},
		tests: []string{"probes", "suites"}, reason: "one run, from the options to the verdict"},
	{tree: "internal/merge", imports: []string{"record", "analysis", "reports", "internal/run", "internal/shard", "suites/conformance"}, reason: "the whole is made of what the shards wrote"},
	{tree: "internal/results", imports: []string{"record", "scenarios", "analysis", "reports", "lab", "internal/bench", "internal/cache", "internal/input", "internal/run", "internal/site", "internal/units", "suites/conformance", "suites/mutants"},
		reason: "results are read in the formats of those who write them"},
	{tree: "cmd", imports: []string{"record", "probes", "scenarios", "analysis", "reports", "proxier", "lab", "internal/bench", "internal/cache", "internal/clusterwatch", "internal/flags", "internal/guest", "internal/input", "internal/merge", "internal/progress", "internal/results", "internal/run", "internal/shard", "internal/site", "internal/units", "suites/conformance", "internal/version"},
		reason: "commands and flags"},
	{tree: "suites", imports: []string{"record", "analysis", "reports", "proxier", "lab", "internal/cache", "internal/progress", "internal/run"},
		tests: []string{"scenarios", "internal/bench", "internal/guest", "internal/routing", "internal/site"}, reason: "specs use the programs as their users do"},
	{tree: "suites/conformance", imports: []string{"record", "scenarios", "analysis", "reports", "internal/cache", "internal/input", "internal/progress", "internal/routing", "internal/run", "internal/shard", "internal/units"},
		tests: []string{"lab", "internal/site", "suites"}, reason: "the conformance suite judges the records of runs, and is part of the program"},
	{tree: "suites/mutants", imports: []string{"record", "internal/cache", "internal/input", "suites/conformance", "suites/faulty"}, tests: []string{"suites"}, reason: "mutants measure the conformance suite from outside"},
	{tree: "hack", imports: []string{"record", "probes", "scenarios", "analysis", "reports", "lab", "cluster", "internal/bench", "internal/cache", "internal/guest", "internal/results", "internal/run", "internal/shard", "internal/site", "internal/units", "suites"},
		reason: "tools of contributors"},
	{tree: "deploy", tests: []string{"cluster"}, reason: "manifests, charts and modules of their own"},
}

func TestImports(t *testing.T) {
	for path, imports := range importsOfFiles(t) {
		rule, ok := ruleOf(filepath.ToSlash(filepath.Dir(path)))
		if !ok {
			if len(imports) > 0 {
				t.Errorf("%s imports %v, and layout_test.go has no rule for its directory", path, imports)
			}
			continue
		}
		allowed := append(slices.Clone(rule.imports), rule.tree)
		if isTest := strings.HasSuffix(path, "_test.go"); isTest {
			allowed = append(append(allowed, rule.tests...), testHelpers...)
		}
		for _, name := range imports {
			if helper := inTrees(testHelpers, name); !inTrees(allowed, name) || helper && !strings.HasSuffix(path, "_test.go") && !inTrees([]string{rule.tree}, name) {
				t.Errorf("%s imports %s: %s", path, name, rule.reason)
			}
		}
	}
}

// The rules themselves can fail: each of these imports is against the flow.
func TestRulesForbidImportsAgainstDataFlow(t *testing.T) {
	for from, to := range map[string]string{"record": "analysis", "analysis": "reports", "observers": "analysis", "probes": "analysis", "scenarios": "analysis",
		"lab/replay": "scenarios", "proxier/engine": "lab", "reports/chart": "reports", "internal/cache": "record", "internal/guest": "reports"} {
		if rule, ok := ruleOf(from); !ok || inTrees(rule.imports, to) {
			t.Errorf("%s may import %s", from, to)
		}
	}
	if _, ok := ruleOf("elsewhere"); ok {
		t.Error("a directory without a rule has one")
	}
}

// ruleOf is the rule of the longest directory that holds a package.
func ruleOf(dir string) (importRule, bool) {
	var best importRule
	for _, r := range importRules {
		if inTrees([]string{r.tree}, dir) && len(r.tree) > len(best.tree) {
			best = r
		}
	}
	return best, best.tree != ""
}

// importsOfFiles maps each Go file to the packages of this project that it imports.
func importsOfFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if notSource(d) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[path] = nil
		for _, spec := range f.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if inner, ours := strings.CutPrefix(name, module); ours {
				files[path] = append(files[path], inner)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// inTrees reports whether a package lies in one of the trees.
func inTrees(trees []string, path string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") })
}

// The package table of CONTRIBUTING.md has a row for each rule, with the same imports.
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
	quoted := regexp.MustCompile("`([a-z/]+)`")
	listed := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		var imports []string
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			imports = append(imports, m[1])
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			listed[m[1]] = imports
		}
	}
	for _, r := range importRules {
		imports, has := listed[r.tree]
		if !has {
			t.Errorf("layout_test.go has a rule for %s, and CONTRIBUTING.md has no row for it", r.tree)
		} else if slices.Sort(imports); !slices.Equal(imports, slices.Sorted(slices.Values(r.imports))) {
			t.Errorf("CONTRIBUTING.md lists the imports %v for %s, and layout_test.go allows %v", imports, r.tree, r.imports)
		}
		delete(listed, r.tree)
	}
	for _, tree := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("CONTRIBUTING.md has a row for %s, and layout_test.go has no rule for it", tree)
	}
}

// A newcomer has to read a whole package to change it, so that packages stay small. Package scenarios has a file for each scenario. Files
// for other platforms do not count: nobody reads a function in all its variants.
func TestPackagesAreSmall(t *testing.T) {
	const most = 25
	count := map[string]int{}
	for path := range importsOfFiles(t) {
		ours, err := build.Default.MatchFile(filepath.Split(path))
		if err != nil {
			t.Fatal(err)
		}
		if ours && !strings.HasSuffix(path, "_test.go") {
			count[filepath.ToSlash(filepath.Dir(path))]++
		}
	}
	for dir, n := range count {
		if n > most && dir != "scenarios" {
			t.Errorf("%s has %d files besides tests; at most %d are allowed", dir, n, most)
		}
	}
}

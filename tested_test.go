package hitless_test

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// taggedTest is a test function in a file with a build tag.
type taggedTest struct {
	pkg, name string
	file      string
	parameter string // its name
}

// testsWith returns the tests in files that are built with the tags and not without them.
func testsWith(t *testing.T, tags ...string) (tests []taggedTest) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if notSource(d) || d != nil && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || !needs(file, tags) {
			return err
		}
		for _, decl := range file.Decls {
			if f, is := decl.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				test := taggedTest{pkg: filepath.ToSlash(filepath.Dir(path)), name: f.Name.Name, file: d.Name()}
				if list := f.Type.Params.List; len(list) == 1 && len(list[0].Names) == 1 {
					test.parameter = list[0].Names[0].Name
				}
				tests = append(tests, test)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) == 0 {
		t.Fatalf("no test needs the tags %q", tags)
	}
	return tests
}

// needs reports whether the constraint of a file demands exactly the tags, whatever the system is.
func needs(file *ast.File, tags []string) bool {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() > file.Package || !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				return false
			}
			has := func(missing string) func(string) bool {
				return func(tag string) bool { return tag == "linux" || tag != missing && slices.Contains(tags, tag) }
			}
			return expr.Eval(has("")) && !slices.ContainsFunc(tags, func(tag string) bool { return expr.Eval(has(tag)) })
		}
	}
	return false
}

// call is a command that runs tests: their packages, and the pattern of their names.
type call struct {
	packages []string
	pattern  *regexp.Regexp
}

var (
	packageWord = regexp.MustCompile(`(?:^|\s)\./([a-z][a-z0-9/]*)`)
	runWord     = regexp.MustCompile(`-run\s+'?([^'\s]+)`)
)

// callsIn returns the commands of a file whose lines have a word.
func callsIn(t *testing.T, file, word string) (calls []call) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		if !strings.Contains(line, word) {
			continue
		}
		c := call{pattern: regexp.MustCompile("")}
		for _, m := range packageWord.FindAllStringSubmatch(line, -1) {
			c.packages = append(c.packages, m[1])
		}
		if m := runWord.FindStringSubmatch(line); m != nil {
			c.pattern = regexp.MustCompile(m[1])
		}
		calls = append(calls, c)
	}
	return calls
}

func (c call) runs(test taggedTest) bool {
	return slices.Contains(c.packages, test.pkg) && c.pattern.MatchString(test.name)
}

// untested are the tests that no command runs.
func untested(tests []taggedTest, calls []call) (none []taggedTest) {
	for _, test := range tests {
		if !slices.ContainsFunc(calls, func(c call) bool { return c.runs(test) }) {
			none = append(none, test)
		}
	}
	return none
}

// onLine is a call of the function on in hack/lab-test.sh: a package, a pattern of names, and whether those tests are left out.
var onLine = regexp.MustCompile(`(?m)^on (\S+) '?([^'\s]+)'?( -v)?$`)

// onSelects is how on finds tests in the files *_lab_test.go.
const onSelects = `'s/^func \(Test[A-Za-z0-9]*\)(t .*/\1/p' "$1"/*_lab_test.go`

var onName = regexp.MustCompile(`^Test[A-Za-z0-9]*$`)

// notSource says of a file or folder that a walk over the project's sources finds whether it is a folder of results, or a hidden one.
func notSource(d fs.DirEntry) bool {
	return d != nil && d.IsDir() && (d.Name() == "out" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".")
}

// cdLine is a call in the folder of another module: folder, and the pattern of its tests.
var cdLine = regexp.MustCompile(`(?m)^\(cd (\S+) && .* -tags lab -run '([^']+)' \.\)`)

// cdRuns reports whether a call in the test's own folder runs the test.
func cdRuns(script string, test taggedTest) bool {
	return slices.ContainsFunc(cdLine.FindAllStringSubmatch(script, -1), func(m []string) bool {
		return m[1] == test.pkg && regexp.MustCompile(m[2]).MatchString(test.name)
	})
}

// onRuns reports whether a call of on runs the test.
func onRuns(script string, test taggedTest) bool {
	if !strings.HasSuffix(test.file, "_lab_test.go") || test.parameter != "t" || !onName.MatchString(test.name) {
		return false
	}
	for _, m := range onLine.FindAllStringSubmatch(script, -1) {
		if m[1] == test.pkg && regexp.MustCompile(m[2]).MatchString(test.name) != (m[3] != "") {
			return true
		}
	}
	return false
}

// Each test in namespaces is run by `make netns` or, in the guest, by suites/proxier; each nightly test by hack/nightly.sh; the pages by `make
// browser`; the benchmark by hack/bench-probes.sh.
func TestEachTestIsRunSomewhere(t *testing.T) {
	guest, err := os.ReadFile("suites/proxier/kernel_test.go")
	if err != nil {
		t.Fatal(err)
	}
	inGuest := call{pattern: regexp.MustCompile("")}
	list := regexp.MustCompile(`var packages = \[\]string\{([^}]*)\}`).FindSubmatch(guest)
	if list == nil {
		t.Fatal("suites/proxier has no list of packages")
	}
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(list[1], -1) {
		inGuest.packages = append(inGuest.packages, string(m[1]))
	}
	netns := callsIn(t, "hack/netns.sh", "inside ")
	for where, c := range map[string]struct {
		tests []taggedTest
		calls []call
	}{
		"make netns and suites/proxier": {testsWith(t, "netns"), append(netns, inGuest)},
		"hack/nightly.sh":               {testsWith(t, "lab", "nightly"), callsIn(t, "hack/nightly.sh", "-tags lab,nightly")},
		"make browser":                  {testsWith(t, "browser"), callsIn(t, "Makefile", "-tags browser")},
		"hack/bench-probes.sh":          {testsWith(t, "netns", "bench"), callsIn(t, "hack/bench-probes.sh", "-tags netns,bench")},
	} {
		if none := untested(c.tests, c.calls); len(none) > 0 {
			t.Errorf("%s runs none of %v", where, none)
		}
	}
	data, err := os.ReadFile("hack/lab-test.sh")
	if err != nil {
		t.Fatal(err)
	}
	labTest := string(data)
	if !strings.Contains(labTest, onSelects) {
		t.Fatalf("hack/lab-test.sh does not select tests by %s", onSelects)
	}
	for _, test := range testsWith(t, "lab") { // of each suite, and of packages that the script names
		if !strings.HasPrefix(test.pkg, "suites/") && !cdRuns(labTest, test) && !onRuns(labTest, test) {
			t.Errorf("hack/lab-test.sh does not run %+v", test)
		}
	}
	for _, test := range []taggedTest{
		{pkg: "internal/run", name: "TestX", file: "x_test.go", parameter: "t"},
		{pkg: "internal/run", name: "TestX", file: "x_lab_test.go", parameter: "tb"},
		{pkg: "internal/run", name: "TestX_Y", file: "x_lab_test.go", parameter: "t"},
		{pkg: "internal/none", name: "TestX", file: "x_lab_test.go", parameter: "t"},
	} {
		if onRuns(labTest, test) {
			t.Errorf("%+v counts as run", test)
		}
	}
	image := taggedTest{pkg: "deploy/image", name: "TestHitlessIsOneImage"}
	if !cdRuns(labTest, image) || cdRuns(labTest, taggedTest{pkg: image.pkg, name: "TestX"}) || cdRuns(labTest, taggedTest{pkg: "deploy/none", name: image.name}) {
		t.Error("the tests of the folder that hack/lab-test.sh enters are not told apart by its pattern")
	}
	if script := "on a '^TestLive' -v\n"; !onRuns(script, taggedTest{"a", "TestX", "x_lab_test.go", "t"}) || onRuns(script, taggedTest{"a", "TestLiveX", "x_lab_test.go", "t"}) {
		t.Error("a pattern that leaves tests out counts as one that selects them")
	}
	other := []taggedTest{{pkg: "probes", name: "TestX"}, {pkg: "observers/none", name: "TestX"}, {pkg: "cmd/hitless", name: "TestX"}}
	if none := untested(other, netns); !slices.Equal(none, other[1:]) {
		t.Errorf("of tests that are not run, %v are found", none)
	}
}

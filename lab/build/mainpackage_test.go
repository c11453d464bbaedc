package build

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
)

const toolRows = `
program proxy m.test/k m.test/k/cmd/proxy v1.1 v1.2 v1.2.0
tool    dns   m.test/d m.test/d/main      v1.1 v1.1 v1.1.0
plugin  dns   m.test/d/plugin/a
plugin  dns   m.test/d/plugin/b
test    e2e   m.test/k m.test/k/e2e       v1.2 v1.2 v1.2.0
`

func TestKindsOfPrograms(t *testing.T) {
	d, err := parseData(toolRows)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []programKind{inLab, tool, testsTool} {
		if d.programs[i].Kind != want {
			t.Errorf("%+v; want the kind %d", d.programs[i], want)
		}
	}
	if got := d.programs[1].packages(); !slices.Equal(got, []string{"m.test/d/main", "m.test/d/plugin/a", "m.test/d/plugin/b"}) {
		t.Errorf("the packages of a tool with plugins are %q", got)
	}
	for _, text := range []string{"plugin dns m.test/x\n", toolRows + "plugin proxy m.test/x\n", toolRows + "plugin dns\n"} {
		if _, err := parseData(text); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

// Tools are built, and neither offered as subjects nor part of a control plane.
func TestToolsAreNoSubjects(t *testing.T) {
	for _, r := range Tools() {
		if slices.ContainsFunc(Versions(), func(v Range) bool { return v.Name == r.Name }) {
			t.Errorf("%s is a tool and a program of the lab", r.Name)
		}
		if target, known := Default(r.Name); !known || target.Version != r.Default {
			t.Errorf("the default of %s is %v", r.Name, target)
		}
		if _, err := ParseTarget(r.Name + "@" + r.Default); err != nil {
			t.Error(err)
		}
	}
	if len(Tools()) == 0 {
		t.Error("there are no tools")
	}
}

func TestGeneratedMainPackage(t *testing.T) {
	d, err := parseData(toolRows)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, p := range d.programs {
		if err := p.writeMain(dir); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "dns", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`program "m.test/d/main"`, `_ "m.test/d/plugin/a"`, `_ "m.test/d/plugin/b"`, "program.Run()"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("programs without plugins have generated packages: %v", files)
	}
}

// Main packages are compiled together, and each package of tests by itself.
func TestJobsOfTests(t *testing.T) {
	d, err := parseData(toolRows)
	if err != nil {
		t.Fatal(err)
	}
	g := &group{root: module.Version{Path: "m.test/k", Version: "v1.2.0"}, programs: []program{d.programs[0], d.programs[2], d.programs[1]}}
	jobs := (&groupBuild{Builder: &Builder{}, group: g, dir: "/work"}).jobs(g)
	if len(jobs) != 2 || !jobs[0].Tests || !slices.Equal(jobs[0].Packages, []string{"m.test/k/e2e"}) || jobs[0].Out != "/work/out/e2e" ||
		jobs[1].Tests || !slices.Equal(jobs[1].Packages, []string{"m.test/k/cmd/proxy", "./dns"}) {
		t.Errorf("%+v", jobs)
	}
}

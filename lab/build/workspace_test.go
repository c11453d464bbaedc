package build

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"pgregory.net/rapid"
)

func exampleRecipe(t *testing.T) recipe {
	local := files(t, map[string]string{"version/v.go": pkg("version"), "Godeps/Godeps.json": "{}"})
	real := func(path, realPath, version string) provider {
		return provider{Path: path, Real: module.Version{Path: realPath, Version: version}, Sum: "h1:zip", GoModSum: "h1:mod"}
	}
	return recipe{
		GoLine: "1.26.0", Godebug: []string{"default=go1.26", "http2debug=0"},
		Modules: []provider{
			real("bitbucket.org/ww/goautoneg", "github.com/munnerz/goautoneg", "v0.0.0-20120707110453-a547fc61f48d"),
			real("github.com/blang/semver/v4", "github.com/blang/semver/v4", "v4.0.0"),
			real("gopkg.in/yaml.v2", "gopkg.in/yaml.v2", "v2.2.1"),
			{Path: "k8s.io/client-go", Dir: local, Local: true},
			real("k8s.io/kubernetes", "k8s.io/kubernetes", "v1.12.2"),
		},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

func TestGoModAndGoSum(t *testing.T) {
	r := exampleRecipe(t)
	mod, err := r.goMod()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "go.mod.golden", mod)
	golden(t, "go.sum.golden", r.goSum())
}

func TestWriteCopiesLocalModules(t *testing.T) {
	dir := t.TempDir()
	if err := exampleRecipe(t).write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"staging/k8s.io/client-go/go.mod":       "module k8s.io/client-go\n",
		"staging/k8s.io/client-go/version/v.go": pkg("version"),
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// A required version must be above every real version that the go command accepts for the path.
func TestHighVersionIsAboveAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom([]string{"a.com/x", "a.com/x/v2", "a.com/x/v17", "gopkg.in/x.v0", "gopkg.in/x.v3"}).Draw(t, "path")
		n := rapid.IntRange(0, 9998)
		_, pathMajor, _ := module.SplitPathVersion(path)
		major := module.PathMajorPrefix(pathMajor)
		if major == "" {
			major = rapid.SampledFrom([]string{"v0", "v1", "v2", "v27"}).Draw(t, "major")
		}
		real := fmt.Sprintf("%s.%d.%d", major, n.Draw(t, "minor"), n.Draw(t, "patch"))
		high, err := highVersion(path)
		if err != nil {
			t.Fatal(err)
		}
		if semver.Compare(high, real) <= 0 {
			t.Fatalf("%s of %s is not above %s", high, path, real)
		}
		if err := module.CheckPathMajor(high, pathMajor); err != nil {
			t.Fatal(err)
		}
	})
}

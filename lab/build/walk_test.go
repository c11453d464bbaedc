package build

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"
)

// fakeSource provides modules that are directories.
type fakeSource map[string]string

func (s fakeSource) has(path string) bool                          { _, ok := s[path]; return ok }
func (s fakeSource) local(string) (string, bool)                   { return "", false }
func (s fakeSource) candidates(string) ([]candidate, error)        { return nil, nil }
func (s fakeSource) directives() (goLine string, godebug []string) { return oldestGoLine, nil }
func (s fakeSource) fetch(log *[]string) fetcher {
	return func(_ context.Context, paths []string) ([]provider, error) {
		*log = append(*log, strings.Join(paths, " "))
		var list []provider
		for _, p := range paths {
			list = append(list, provider{Path: p, Real: module.Version{Path: p, Version: "v1.0.0"}, Dir: s[p]})
		}
		return list, nil
	}
}

// walkTree is a root module a.com/tool, and modules of which some provide what it imports.
func walkTree(t *testing.T) (root provider, src fakeSource) {
	root = provider{Path: "a.com/tool", Dir: files(t, map[string]string{
		"cmd/one/main.go":      pkg("main", "fmt", "b.com/lib/sub", "a.com/tool/pkg"),
		"cmd/one/c.go":         pkg("main", "C", "b.com/only/with/c"),
		"cmd/one/main_test.go": pkg("main", "b.com/only/in/tests"),
		"cmd/two/main.go":      pkg("main", "c.com/deep/inner/x"),
		"cmd/bad/main.go":      pkg("main", "nowhere.com/x"),
		"pkg/pkg.go":           pkg("pkg", "net/http"),
		"pkg/pkg_windows.go":   pkg("pkg", "b.com/only/on/windows"),
		"pkg/pkg_cgo.go":       "//go:build cgo\n\n" + pkg("pkg", "b.com/only/with/cgo"),
		"pkg/pkg_old.go":       "//go:build !go1.99\n\n" + pkg("pkg", "b.com/only/with/old/go"),
		"pkg/pkg_new.go":       "//go:build go1.99 && !go1.100\n\n" + pkg("pkg", "c.com/deep/outer"),
	})}
	src = fakeSource{
		"b.com/lib":        files(t, map[string]string{"sub/sub.go": pkg("sub")}),
		"c.com/deep":       files(t, map[string]string{"inner/x/x.go": pkg("x", "c.com/deep/inner/y"), "outer/o.go": pkg("outer")}),
		"c.com/deep/inner": files(t, map[string]string{"y/y.go": pkg("y"), "x/README": "no Go files"}),
		"d.com/never":      files(t, map[string]string{"d.go": pkg("never")}),
	}
	return root, src
}

func testInfo(t *testing.T) goInfo {
	goroot := files(t, map[string]string{"src/fmt/print.go": pkg("fmt"), "src/net/http/http.go": pkg("http")})
	return goInfo{Version: "go1.99.1", Root: goroot, Tags: releaseTags("go1.99.1")} // not the Go of the test itself
}

func paths(list []provider) []string {
	var out []string
	for _, p := range list {
		out = append(out, p.Path)
	}
	return out
}

func TestWalk(t *testing.T) {
	root, src := walkTree(t)
	var fetched []string
	w := newWalker(src, src.fetch(&fetched), testInfo(t), root)
	if err := w.walk(t.Context(), "a.com/tool/cmd/one", "a.com/tool/cmd/two"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a.com/tool/cmd/one", "a.com/tool/cmd/two", "a.com/tool/pkg", "b.com/lib/sub",
		"c.com/deep/inner/x", "c.com/deep/inner/y", "c.com/deep/outer",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(w.packages))); diff != "" {
		t.Error("packages: ", diff)
	}
	if got := w.packages["c.com/deep/inner/x"].module; got != "c.com/deep" {
		t.Errorf("c.com/deep/inner/x is provided by %s: a module without the package was taken", got)
	}
	if got := w.packages["c.com/deep/inner/y"].module; got != "c.com/deep/inner" {
		t.Errorf("c.com/deep/inner/y is provided by %s, not by the longest path", got)
	}
	if diff := cmp.Diff([]string{"b.com/lib c.com/deep c.com/deep/inner"}, fetched); diff != "" {
		t.Error("what is missing is not fetched together and once: ", diff)
	}
	if diff := cmp.Diff([]string{"a.com/tool", "b.com/lib", "c.com/deep"}, paths(w.used("a.com/tool/cmd/one"))); diff != "" {
		t.Error("modules of one program: ", diff)
	}
	if diff := cmp.Diff([]string{"a.com/tool", "c.com/deep", "c.com/deep/inner"}, paths(w.used("a.com/tool/cmd/two"))); diff != "" {
		t.Error("modules of the other program: ", diff)
	}
}

func TestWalkNamesWhatIsMissing(t *testing.T) {
	root, src := walkTree(t)
	var fetched []string
	w := newWalker(src, src.fetch(&fetched), testInfo(t), root)
	err := w.walk(t.Context(), "a.com/tool/cmd/bad")
	for _, part := range []string{"nowhere.com/x", "imported by a.com/tool/cmd/bad"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
	if err := w.walk(t.Context(), "a.com/tool/cmd/none"); err == nil || !strings.Contains(err.Error(), "it was asked for") {
		t.Errorf("error of a program that does not exist is %v", err)
	}
}

func TestWalkPassesOnWhyAModuleIsMissing(t *testing.T) {
	root, src := walkTree(t)
	w := newWalker(src, func(context.Context, []string) ([]provider, error) {
		return nil, fmt.Errorf("c.com/deep@v1.0.0: %w", ErrNotServed)
	}, testInfo(t), root)
	if err := w.walk(t.Context(), "a.com/tool/cmd/two"); err == nil || !strings.Contains(err.Error(), "c.com/deep@v1.0.0") {
		t.Errorf("error is %v", err)
	}
}

func TestStagingIsLocalOnlyInTheZip(t *testing.T) {
	dir := files(t, map[string]string{"staging/src/k8s.io/api/core/core.go": pkg("core")})
	s, err := readGodeps(&dataset{}, module.Version{}, dir, []byte(`{"Deps": []}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := s.local("k8s.io/api"); !ok || got != filepath.Join(dir, "staging", "src", "k8s.io", "api") {
		t.Errorf("local module is %q, %v", got, ok)
	}
	for _, path := range []string{"k8s.io/klog", "k8s.io/api/core", "k8s.io", "a.com/api"} {
		if s.has(path) {
			t.Errorf("%s counts as a module", path)
		}
	}
}

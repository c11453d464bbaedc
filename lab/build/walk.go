package build

import (
	"context"
	"errors"
	"fmt"
	gobuild "go/build"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// provider is a downloaded module.
type provider struct {
	Path     string         // path under which it is imported
	Real     module.Version // the module that is used for it; without a version when it is local
	Dir      string
	Local    bool   // a directory of the root module, or the changed root module itself
	Change   string // of the root module; empty for none
	Sum      string
	GoModSum string
	Notes    []string // notes of substitutions
}

// fetcher downloads modules and returns them in order.
type fetcher func(ctx context.Context, paths []string) ([]provider, error)

// walker follows imports from main packages and collects the needed modules.
type walker struct {
	source    source
	fetch     fetcher
	std       string // GOROOT/src
	context   gobuild.Context
	providers map[string]provider // by import path of the module
	packages  map[string]walked   // by import path
	importer  map[string]string   // first importer of a package, for messages
	tests     map[string]bool     // packages whose tests are compiled too
}

// walked is one visited package.
type walked struct {
	module  string
	imports []string
}

func newWalker(src source, fetch fetcher, info goInfo, root provider) *walker {
	c := gobuild.Default
	c.GOOS, c.GOARCH, c.CgoEnabled, c.Compiler = "linux", Architecture, false, "gc"
	c.GOROOT, c.ReleaseTags, c.BuildTags, c.ToolTags = info.Root, info.Tags, nil, nil
	return &walker{
		source: src, fetch: fetch, context: c, std: filepath.Join(info.Root, "src"),
		providers: map[string]provider{root.Path: root},
		packages:  map[string]walked{},
		importer:  map[string]string{},
		tests:     map[string]bool{},
	}
}

// walk visits the packages and all their imports. It fetches missing modules in batches.
func (w *walker) walk(ctx context.Context, packages ...string) error {
	queue := slices.Clone(packages)
	for len(queue) > 0 {
		waiting, missing, err := w.visitAll(queue)
		if err != nil {
			return err
		}
		slices.Sort(missing)
		missing = slices.Compact(missing)
		if len(missing) == 0 {
			return nil
		}
		got, err := w.fetch(ctx, missing)
		if err != nil {
			return err
		}
		for _, p := range got {
			w.providers[p.Path] = p
		}
		queue = waiting
	}
	return nil
}

// visitAll visits the packages whose modules are present. It returns the others and their missing modules.
func (w *walker) visitAll(queue []string) (waiting, missing []string, err error) {
	for len(queue) > 0 {
		pkg := queue[0]
		queue = queue[1:]
		if _, seen := w.packages[pkg]; seen || w.standard(pkg) {
			continue
		}
		p, need, err := w.locate(pkg)
		if err != nil {
			return nil, nil, err
		}
		if need != "" {
			waiting, missing = append(waiting, pkg), append(missing, need)
			continue
		}
		imports, err := w.imports(pkg, p)
		if err != nil {
			return nil, nil, err
		}
		w.packages[pkg] = walked{module: p.Path, imports: imports}
		for _, i := range imports {
			if _, known := w.importer[i]; !known {
				w.importer[i] = pkg
			}
		}
		queue = append(queue, imports...)
	}
	return waiting, missing, nil
}

// standard reports whether a package belongs to the standard library.
func (w *walker) standard(pkg string) bool {
	info, err := os.Stat(filepath.Join(w.std, filepath.FromSlash(pkg)))
	return err == nil && info.IsDir()
}

// locate finds the module of a package, the longest path first. need is a module that must be fetched first.
func (w *walker) locate(pkg string) (p provider, need string, err error) {
	for prefix := pkg; prefix != "."; prefix = path.Dir(prefix) {
		p, ready := w.providers[prefix]
		if !ready && !w.source.has(prefix) {
			continue
		}
		if !ready {
			return provider{}, prefix, nil
		}
		if hasGoFiles(p.packageDir(pkg)) {
			return p, "", nil
		}
	}
	by := w.importer[pkg]
	if by == "" {
		by = "nothing: it was asked for"
	}
	return provider{}, "", fmt.Errorf("no module that upstream names has the package %s (imported by %s)", pkg, by)
}

func (p provider) packageDir(pkg string) string {
	return filepath.Join(p.Dir, filepath.FromSlash(strings.TrimPrefix(pkg, p.Path)))
}

func hasGoFiles(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".go")
	})
}

func (w *walker) imports(pkg string, p provider) ([]string, error) {
	found, err := w.context.ImportDir(p.packageDir(pkg), 0)
	var none *gobuild.NoGoError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("package %s of %s has no file for linux/%s", pkg, p.Path, w.context.GOARCH)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the imports of %s: %w", pkg, err)
	}
	if w.tests[pkg] {
		return slices.Concat(found.Imports, found.TestImports, found.XTestImports), nil
	}
	return found.Imports, nil
}

// used returns the modules of all packages that the given ones reach, sorted by path.
func (w *walker) used(packages ...string) []provider {
	seen, modules := map[string]bool{}, map[string]bool{}
	for queue := slices.Clone(packages); len(queue) > 0; {
		pkg := queue[0]
		queue = queue[1:]
		at, ok := w.packages[pkg]
		if !ok || seen[pkg] {
			continue
		}
		seen[pkg], modules[at.module] = true, true
		queue = append(queue, at.imports...)
	}
	var list []provider
	for m := range modules {
		list = append(list, w.providers[m])
	}
	slices.SortFunc(list, func(a, b provider) int { return strings.Compare(a.Path, b.Path) })
	return list
}

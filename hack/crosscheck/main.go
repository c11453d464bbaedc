// Command crosscheck type-checks packages and their tests for other platforms. It reads the sources alone, and so takes seconds where a build
// compiles a thousand packages for each platform. What only a compiler or a linker finds, `make cross` finds.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck GOOS/GOARCH[=PACKAGE,PACKAGE...]...")
		os.Exit(2)
	}
	failed := 0
	for _, platform := range os.Args[1:] {
		n, err := check(".", platform, os.Stdout)
		if err != nil {
			fmt.Fprintf(os.Stderr, "crosscheck: %s: %v\n", platform, err)
			os.Exit(2)
		}
		failed += n
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// check writes the errors of a platform's packages in dir and returns their number. Without packages all of them are checked.
func check(dir, platform string, out io.Writer) (int, error) {
	platform, list, some := strings.Cut(platform, "=")
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return 0, fmt.Errorf("give GOOS/GOARCH, such as darwin/arm64")
	}
	patterns := []string{"./..."}
	if some {
		patterns = strings.Split(list, ",")
	}
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes |
			packages.NeedSyntax | packages.NeedTypesSizes | packages.NeedModule,
		Dir: dir, Tests: true, Env: append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"), ParseFile: parse(dir)}, patterns...)
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		return 0, fmt.Errorf("no package is %s", strings.Join(patterns, " or "))
	}
	seen := map[string]bool{}
	packages.Visit(found, nil, func(p *packages.Package) {
		if foreign(p) || strings.HasSuffix(p.ID, ".test") { // generated mains of tests are in the build cache
			return
		}
		for _, e := range p.Errors {
			if text := platform + ": " + e.Error(); !seen[text] {
				seen[text] = true
				fmt.Fprintln(out, text)
			}
		}
	})
	return len(seen), nil
}

// foreign reports whether a package is of another module or of the standard library, whose functions have no bodies here. A package that cannot be
// found has neither a module nor files.
func foreign(p *packages.Package) bool {
	if p.Module != nil {
		return !p.Module.Main
	}
	return len(p.GoFiles) > 0
}

// parse leaves out the bodies of functions of other modules: only their types are needed.
func parse(dir string) func(*token.FileSet, string, []byte) (*ast.File, error) {
	own, err := os.Getwd()
	if err == nil && dir != "." {
		own = dir
	}
	return func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
		f, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if f != nil && !strings.HasPrefix(name, own+string(filepath.Separator)) {
			for _, d := range f.Decls {
				if fn, is := d.(*ast.FuncDecl); is {
					fn.Body = nil
				}
			}
		}
		return f, err
	}
}

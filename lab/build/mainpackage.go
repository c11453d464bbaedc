package build

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
)

// mainPackage is what the go command builds.
func (p program) mainPackage() string {
	if len(p.Plugins) > 0 {
		return "./" + p.Name
	}
	return p.Package
}

// writeMain writes the main package of a program with plugins into the module of the build.
func (p program) writeMain(dir string) error {
	if len(p.Plugins) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "package main\n\nimport (\n\tprogram %q\n", p.Package)
	for _, plugin := range p.Plugins {
		fmt.Fprintf(&b, "\t_ %q\n", plugin)
	}
	b.WriteString(")\n\nfunc main() { program.Run() }\n")
	at := filepath.Join(dir, p.Name)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fmt.Errorf("writing the main package of %s: %w", p.Name, err)
	}
	if err := os.WriteFile(filepath.Join(at, "main.go"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing the main package of %s: %w", p.Name, err)
	}
	return nil
}

// executable is the name of a program's file. For main packages the go command gives it.
func executable(p program) string {
	if p.Kind == testsTool || len(p.Plugins) > 0 {
		return p.Name
	}
	prefix, _, ok := module.SplitPathVersion(p.Package)
	if !ok || p.Package != p.Module {
		return path.Base(p.Package)
	}
	return path.Base(prefix)
}

// packages are those from which the walk for a program begins.
func (p program) packages() []string { return append([]string{p.Package}, p.Plugins...) }

package site

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/compile"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/tools"
)

// mainTarget is the build target of the program that starts; the zero value for the bundled proxier and for a proxy that a file describes.
func mainTarget(p subject.Spec) build.Target {
	recipe := p.Exec.RecipeOf()
	switch {
	case recipe != nil:
		return build.Target{Name: recipe.Main, Version: recipe.Version}
	case p.Name == subject.KubeProxy:
		return build.Target{Name: p.Name, Version: p.Version}
	}
	return build.Target{}
}

// proxyTargets are the build targets of a proxy.
func proxyTargets(p subject.Spec) (targets []build.Target) {
	recipe := p.Exec.RecipeOf()
	if recipe == nil {
		if main := mainTarget(p); main != (build.Target{}) {
			targets = append(targets, main)
		}
		return targets
	}
	for _, name := range slices.Sorted(maps.Keys(recipe.Programs)) {
		targets = append(targets, build.Target{Name: name, Version: recipe.Version})
	}
	return targets
}

// guestPath is where a built program is in the guest.
func guestPath(t build.Target, proxies []subject.Spec) string {
	for _, p := range proxies {
		switch recipe := p.Exec.RecipeOf(); {
		case recipe != nil && recipe.Version == t.Version && recipe.Programs[t.Name] != "":
			return recipe.Programs[t.Name]
		case mainTarget(p) == t:
			return path.Join(guest.Binaries, p.Binary())
		}
	}
	return path.Join(guest.Binaries, t.Name)
}

// followRecipe adds what a proxy that hitless builds needs besides its programs, and completes its description. Every error is a
// UsageError.
func followRecipe(ctx context.Context, b *build.Builder, e *subject.Exec) error {
	sources, err := b.Sources(ctx, module.Version{Path: e.Recipe.Module, Version: e.Recipe.Version})
	if err != nil {
		return UsageError{Reason: err}
	}
	if err := e.Follow(ctx, sources); err != nil {
		return UsageError{Reason: err}
	}
	return nil
}

// addCompiler adds the program that stands for clang. With the virtual clock the host compiles; otherwise the guest has clang.
func (l *lab) addCompiler(ctx context.Context, p *packer, e *subject.Exec) error {
	set, err := p.tools(ctx)
	if err != nil {
		return err
	}
	clang, has := set.Compiler()
	if !has {
		return errors.New("the guest's tools have no compiler")
	}
	sum := sha256.Sum256([]byte(strings.Join(set.Packages, "\n")))
	digest := hex.EncodeToString(sum[:])
	program := guest.Program + " guest clang"
	if l.Clock == "real" {
		program = clang.Guest
		if err := p.addToolFile(clang, clang.Guest); err != nil {
			return err
		}
	}
	compiler := e.Recipe.Compiler
	p.img.Script(compiler.Program, fmt.Sprintf("#!/bin/sh\n# of the packages %s\nexec %s \"$@\" %s\n", digest, program, strings.Join(compiler.Flags, " ")))
	root := string(set.Root())
	l.compiler = &compile.Service{Digest: digest, Sources: map[string]string{}, Dir: ObjectsDir(l.Cache),
		Compiler: []string{filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", filepath.Join(root, "usr/lib/x86_64-linux-gnu"), clang.Path}}
	for _, f := range e.Pack.Files {
		l.compiler.Sources[f.To] = f.From
	}
	return nil
}

// ObjectsDir is the directory of compiled BPF programs in a cache.
func ObjectsDir(cacheDir string) string { return filepath.Join(cacheDir, "objects") }

// needsCompiler reports whether the guest needs a compiler for BPF.
func (l *lab) needsCompiler() bool {
	recipe := l.spec.Exec.RecipeOf()
	return recipe != nil && recipe.Compiler != nil
}

// toolsPurpose says which tools the guest needs.
func (l *lab) toolsPurpose() tools.Purpose {
	if l.needsCompiler() {
		return tools.ForCompilers
	}
	return tools.ForGuests
}

package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// candidate is a possible version of a module.
type candidate struct {
	Mod  module.Version // what to download
	Note string         // the note of a substitution; empty for the version that upstream names
}

// source has the versions of a program's dependencies.
type source interface {
	// has reports whether path is the path of a module that can provide packages.
	has(path string) bool
	// local is the directory, inside the root module, of a module that is not published on its own.
	local(path string) (dir string, ok bool)
	// candidates returns the versions to try for a module, best first; the error is the reason for none.
	candidates(path string) ([]candidate, error)
	// directives returns those of upstream's go.mod for the go.mod of the build.
	directives() (goLine string, godebug []string)
}

// patchesLower is the number of earlier patch releases that are tried for a staging module: proxies do not serve every patch
// release.
const patchesLower = 3

// openSource reads the go.mod of the downloaded root module, or the Godeps.json of Kubernetes up to 1.14.
func openSource(d *dataset, root module.Version, dir string) (source, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err == nil {
		return readGoMod(d, root, text)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the dependencies of %s: %w", root, err)
	}
	text, err = os.ReadFile(filepath.Join(dir, "Godeps", "Godeps.json"))
	if err != nil {
		return nil, fmt.Errorf("reading the dependencies of %s: it has no go.mod, and %w", root, err)
	}
	return readGodeps(d, root, dir, text)
}

// goMod is the source of root modules with a go.mod.
type goMod struct {
	data     *dataset
	root     module.Version
	file     *modfile.File
	require  map[string]string
	replaced map[string]module.Version
}

func readGoMod(d *dataset, root module.Version, text []byte) (*goMod, error) {
	f, err := modfile.Parse(root.String()+"/go.mod", text, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the dependencies of %s: %w", root, err)
	}
	s := &goMod{data: d, root: root, file: f, require: map[string]string{}, replaced: map[string]module.Version{}}
	for _, r := range f.Require {
		s.require[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range f.Replace {
		s.replaced[r.Old.Path] = r.New
	}
	return s, nil
}

func (s *goMod) has(path string) bool {
	_, required := s.require[path]
	_, replaced := s.replaced[path]
	return required || replaced
}

func (s *goMod) local(string) (string, bool) { return "", false }

func (s *goMod) directives() (string, []string) {
	line := oldestGoLine
	if s.file.Go != nil && semver.Compare("v"+s.file.Go.Version, "v"+line) > 0 {
		line = s.file.Go.Version
	}
	var godebug []string
	for _, g := range s.file.Godebug {
		godebug = append(godebug, g.Key+"="+g.Value)
	}
	return line, godebug
}

func (s *goMod) candidates(path string) ([]candidate, error) {
	target, replaced := s.replaced[path]
	switch {
	case replaced && target.Version != "":
		return s.data.applyFloor(path, []candidate{{Mod: target}}), nil
	case replaced:
		return s.sibling(path)
	default:
		return s.data.applyFloor(path, []candidate{{Mod: module.Version{Path: path, Version: s.require[path]}}}), nil
	}
}

// sibling returns the candidates of a module in the same repository, which upstream's go.mod replaces with a directory outside the
// zip of the root module. Its version is the required one or, for the placeholder v0.0.0, that of the root with major version 0, as
// Kubernetes publishes its staging modules.
func (s *goMod) sibling(path string) ([]candidate, error) {
	if v := s.require[path]; v != "" && v != "v0.0.0" {
		return []candidate{{Mod: module.Version{Path: path, Version: v}}}, nil
	}
	minor, patch, err := minorPatch(s.root.Version)
	if err != nil {
		return nil, err
	}
	exact := fmt.Sprintf("v0.%d.%s", minor, patch)
	list := []candidate{{Mod: module.Version{Path: path, Version: exact}}}
	var number int
	if _, err := fmt.Sscanf(patch, "%d", &number); err != nil || semver.Prerelease(exact) != "" {
		return list, nil
	}
	for lower := number - 1; lower >= 0 && lower >= number-patchesLower; lower-- {
		v := fmt.Sprintf("v0.%d.%d", minor, lower)
		list = append(list, candidate{
			Mod:  module.Version{Path: path, Version: v},
			Note: fmt.Sprintf("%s %s instead of %s, which is not served", path, v, exact),
		})
	}
	return list, nil
}

// applyFloor replaces candidates below the module's floor with the floor.
func (d *dataset) applyFloor(path string, list []candidate) []candidate {
	f, ok := d.floors[path]
	if !ok {
		return list
	}
	raised := slices.Clone(list)
	for i, c := range raised {
		if semver.Compare(c.Mod.Version, f.Version) < 0 {
			raised[i] = candidate{
				Mod:  module.Version{Path: path, Version: f.Version},
				Note: fmt.Sprintf("%s %s instead of %s: %s", path, f.Version, c.Mod.Version, f.Reason),
			}
		}
	}
	return slices.CompactFunc(raised, func(a, b candidate) bool { return a.Mod == b.Mod })
}

// incompatible adds +incompatible to a tag of major version 2 or higher when the module path has no major version, as without a
// go.mod.
func incompatible(path, version string) string {
	_, pathMajor, ok := module.SplitPathVersion(path)
	major := semver.Major(version)
	if ok && pathMajor == "" && major != "v0" && major != "v1" && !strings.HasSuffix(version, "+incompatible") {
		return version + "+incompatible"
	}
	return version
}

package build

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// recipe is the input of a go build.
type recipe struct {
	GoLine  string   // language version, as 1.26.0
	Godebug []string // key=value, from upstream's go.mod
	Modules []provider
}

// stagingDir is the directory of local modules, relative to the go.mod.
const stagingDir = "staging"

// goMod renders the go.mod of the build. Each module is required at a version above those of all dependencies, and replaced with the
// wanted one. The go command then does not load the whole module graph, which has modules that no package needs and no proxy serves.
func (r recipe) goMod() (string, error) {
	var b strings.Builder
	for _, m := range r.Modules {
		if m.Change != "" {
			fmt.Fprintf(&b, "// %s\n\n", m.Change)
		}
	}
	fmt.Fprintf(&b, "module build\n\ngo %s\n", r.GoLine)
	if len(r.Godebug) > 0 {
		fmt.Fprintf(&b, "\ngodebug (\n\t%s\n)\n", strings.Join(r.Godebug, "\n\t"))
	}
	var require, replace strings.Builder
	for _, m := range r.Modules {
		high, err := highVersion(m.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&require, "\t%s %s\n", m.Path, high)
		if m.Local {
			fmt.Fprintf(&replace, "\t%s => ./%s/%s\n", m.Path, stagingDir, m.Path)
		} else {
			fmt.Fprintf(&replace, "\t%s => %s %s\n", m.Path, m.Real.Path, m.Real.Version)
		}
	}
	fmt.Fprintf(&b, "\nrequire (\n%s)\n\nreplace (\n%s)\n", require.String(), replace.String())
	return b.String(), nil
}

// highVersion is a version above every published one of the module.
func highVersion(path string) (string, error) {
	_, pathMajor, ok := module.SplitPathVersion(path)
	if !ok {
		return "", fmt.Errorf("%q is not a module path", path)
	}
	if pathMajor == "" {
		return "v9999.0.0+incompatible", nil
	}
	major := strings.TrimSuffix(strings.TrimLeft(pathMajor, "/."), "-unstable")
	return major + ".9999.0", nil
}

// goSum renders the go.sum of the build from the verified downloads.
func (r recipe) goSum() string {
	var lines []string
	for _, m := range r.Modules {
		if m.Local {
			continue
		}
		lines = append(lines,
			fmt.Sprintf("%s %s %s\n", m.Real.Path, m.Real.Version, m.Sum),
			fmt.Sprintf("%s %s/go.mod %s\n", m.Real.Path, m.Real.Version, m.GoModSum))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// write writes go.mod, go.sum and copies of local modules into a directory.
func (r recipe) write(dir string) error {
	text, err := r.goMod()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the build's go.mod: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), []byte(r.goSum()), 0o644); err != nil {
		return fmt.Errorf("writing the build's go.sum: %w", err)
	}
	for _, m := range r.Modules {
		if !m.Local {
			continue
		}
		if err := copyLocal(filepath.Join(dir, stagingDir, filepath.FromSlash(m.Path)), m); err != nil {
			return fmt.Errorf("copying %s: %w", m.Path, err)
		}
	}
	return nil
}

// copyLocal copies a local module with write permission, and adds a go.mod if it has none.
func copyLocal(to string, m provider) error {
	err := filepath.WalkDir(m.Dir, func(from string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(m.Dir, from)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err != nil {
		return err
	}
	file := filepath.Join(to, "go.mod")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return os.WriteFile(file, []byte("module "+m.Path+"\n"), 0o644)
}

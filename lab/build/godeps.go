package build

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// oldestGoLine is the minimum language version of builds: the oldest with which the go command does not load the whole module graph.
const oldestGoLine = "1.17"

// godep is a dependency in Godeps.json.
type godep struct {
	Revision string // full hash of the commit
	Comment  string // tag, or git describe's distance from one
}

// godeps is the source of Kubernetes up to 1.14.
type godeps struct {
	data *dataset
	root module.Version
	dir  string // directory of the root module
	deps map[string]godep
}

func readGodeps(d *dataset, root module.Version, dir string, text []byte) (*godeps, error) {
	var file struct {
		Deps []struct{ ImportPath, Comment, Rev string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("reading Godeps.json of %s: %w", root, err)
	}
	s := &godeps{data: d, root: root, dir: dir, deps: map[string]godep{}}
	for _, dep := range file.Deps {
		path := repositoryRoot(dep.ImportPath)
		if _, seen := s.deps[path]; !seen {
			s.deps[path] = godep{Revision: dep.Rev, Comment: dep.Comment}
		}
	}
	return s, nil
}

// repositoryRoot is the repository of an import path, which is the module path of code without a go.mod.
func repositoryRoot(importPath string) string {
	parts := strings.Split(importPath, "/")
	n := 2
	switch parts[0] {
	case "github.com", "bitbucket.org", "golang.org":
		n = 3
	case "gopkg.in":
		if len(parts) > 1 && !strings.Contains(parts[1], ".v") {
			n = 3
		}
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}

// has includes moved repositories: a substitute of a later revision may still import one.
func (s *godeps) has(path string) bool {
	_, named := s.deps[path]
	_, gone := s.data.moved[path]
	_, staging := s.local(path)
	return named || gone || staging
}

// local finds the staging repositories, which are in the zip of k8s.io/kubernetes while they have no go.mod.
func (s *godeps) local(path string) (string, bool) {
	if strings.Count(path, "/") != 1 || !strings.HasPrefix(path, "k8s.io/") {
		return "", false
	}
	dir := filepath.Join(s.dir, "staging", "src", filepath.FromSlash(path))
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}

func (s *godeps) directives() (string, []string) { return oldestGoLine, nil }

// candidates returns, in this order: the replacement of a moved repository; the pins of this revision; the tag in Godeps.json; the
// substitute of this revision; other pins of the module, newest first.
func (s *godeps) candidates(path string) ([]candidate, error) {
	dep := s.deps[path]
	short := dep.Revision[:min(12, len(dep.Revision))]
	if m, ok := s.data.moved[path]; ok {
		return []candidate{s.movedTo(path, short, m)}, nil
	}
	at := func(v, note string) candidate {
		return candidate{Mod: module.Version{Path: path, Version: v}, Note: note}
	}
	var exact, other []candidate
	pins := slices.Clone(s.data.pins[path])
	slices.SortStableFunc(pins, func(a, b string) int { return semver.Compare(b, a) })
	for _, v := range pins {
		if short != "" && strings.HasSuffix(strings.TrimSuffix(v, "+incompatible"), short) {
			exact = append(exact, at(v, ""))
		} else {
			other = append(other, at(v, fmt.Sprintf("%s %s instead of revision %s, for which no version is known", path, v, short)))
		}
	}
	if fullVersion(dep.Comment) && semver.Prerelease(dep.Comment) == "" {
		tag := incompatible(path, dep.Comment)
		exact = append(exact, at(tag, ""))
		other = slices.DeleteFunc(other, func(c candidate) bool { return c.Mod.Version == tag })
	}
	if in, ok := s.data.substitutes[path][short]; ok {
		other = slices.DeleteFunc(other, func(c candidate) bool { return c.Mod.Version == in.Version })
		exact = append(exact, at(in.Version, fmt.Sprintf("%s %s instead of revision %s: %s", path, in.Version, short, in.Reason)))
	}
	list := s.data.applyFloor(path, append(exact, other...))
	if f, ok := s.data.floors[path]; ok && len(list) == 0 {
		list = append(list, at(f.Version, fmt.Sprintf("%s %s instead of revision %s: %s", path, f.Version, short, f.Reason)))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s names revision %s of %s, and no module version is known for it; add a row to the table of pins",
			s.root, short, path)
	}
	return list, nil
}

func (s *godeps) movedTo(path, revision string, m moved) candidate {
	to := m.To
	if _, both := s.deps[to.Path]; both && m.Else != "" {
		to.Version = m.Else
	}
	return candidate{
		Mod:  to,
		Note: fmt.Sprintf("%s %s instead of %s, whose repository is gone", to.Path, to.Version, strings.TrimSpace(path+" "+revision)),
	}
}

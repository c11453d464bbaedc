package tools

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/debian"
)

// tree is a directory in which packages are unpacked, with a merged /usr and without links.
type tree struct {
	dir   string
	owner map[string]Package // of each file, by its name in the directory
	links map[string]string  // link and target, as names in the directory
}

func newTree(dir string) *tree { return &tree{dir, map[string]Package{}, map[string]string{}} }

// wanted reports whether guests may need a file: a program, a library, or an extension of iptables.
func wanted(name string) bool {
	switch path.Dir(name) {
	case "usr/bin", "usr/sbin", "usr/lib64":
		return true
	case path.Dir(clang):
		return name == clang
	case libraryDir:
		return strings.Contains(path.Base(name), ".so")
	case extensionDir:
		return strings.HasSuffix(name, ".so")
	}
	return false
}

// clang is the compiler. It has a folder of its own in Debian, and a link in usr/bin.
const clang = "usr/lib/llvm-19/bin/clang"

// extensionDir has the extensions of iptables, which it loads when it needs them.
const extensionDir = libraryDir + "/xtables"

// merged maps lib/x to usr/lib/x, as the links of a merged /usr do.
func merged(name string) string {
	for _, dir := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(name, dir) {
			return "usr/" + name
		}
	}
	return name
}

// add unpacks the wanted files of a package.
func (t *tree) add(ctx context.Context, p Package, file string) error {
	return debian.Walk(ctx, file, func(h *tar.Header, content io.Reader) error {
		name := merged(h.Name)
		if h.Typeflag == tar.TypeDir || !wanted(name) {
			return nil
		}
		if other, has := t.owner[name]; has {
			return fmt.Errorf("%s and %s both have the file %s", other, p, name)
		}
		t.owner[name] = p
		switch h.Typeflag {
		case tar.TypeReg:
			return t.write(name, content)
		case tar.TypeSymlink:
			target := h.Linkname
			if !path.IsAbs(target) {
				target = path.Join("/", path.Dir(h.Name), target)
			}
			t.links[name] = merged(strings.TrimPrefix(path.Clean(target), "/"))
			return nil
		case tar.TypeLink:
			t.links[name] = merged(path.Clean(h.Linkname))
			return nil
		}
		return fmt.Errorf("%s is neither a file nor a link", h.Name)
	})
}

func (t *tree) write(name string, content io.Reader) error {
	file := filepath.Join(t.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// resolve replaces links by the files that they lead to. Links to files that are not in the tree are left out.
func (t *tree) resolve() error {
	for _, name := range slices.Sorted(maps.Keys(t.links)) {
		target := name
		for range t.links {
			next, is := t.links[target]
			if !is {
				break
			}
			target = next
		}
		file := filepath.Join(t.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		switch err := os.Link(filepath.Join(t.dir, target), file); {
		case errors.Is(err, fs.ErrNotExist):
			delete(t.owner, name)
		case err != nil:
			return err
		}
	}
	clear(t.links)
	return nil
}

// missing returns the libraries that no package has, by the package that needs them.
func (t *tree) missing() (map[Package]*MissingError, error) {
	lacking := map[Package]*MissingError{}
	for _, name := range slices.Sorted(maps.Keys(t.owner)) {
		file := filepath.Join(t.dir, name)
		is, err := isELF(file)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		_, err = Libraries(file, Root(t.dir))
		var m *MissingError
		switch {
		case errors.As(err, &m):
			needing, err := filepath.Rel(t.dir, m.Program)
			if err != nil {
				return nil, err
			}
			lacking[t.owner[filepath.ToSlash(needing)]] = &MissingError{m.Library, needing}
		case err != nil:
			return nil, err
		}
	}
	return lacking, nil
}

// complete returns an error that names a library which no package has.
func (t *tree) complete() error {
	lacking, err := t.missing()
	if err != nil {
		return err
	}
	for _, p := range slices.SortedFunc(maps.Keys(lacking), func(a, b Package) int { return strings.Compare(a.Name, b.Name) }) {
		return fmt.Errorf("the packages of the guest's tools do not have all that they need: %w (of the package %s)", lacking[p], p)
	}
	return nil
}

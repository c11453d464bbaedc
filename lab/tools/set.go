package tools

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// Set is the unpacked packages in the cache. All its files have been verified.
type Set struct {
	// Packages are NAME_VERSION, sorted.
	Packages []string
	// Replaced are those of Packages that are not the pinned ones; empty as long as the mirror has these.
	Replaced []string

	dir   string
	files cache.Manifest
}

// setPrefix begins the names of unpacked sets.
const setPrefix = "set-"

// Open verifies a sealed directory with unpacked packages, which it does not name. The error of a missing one wraps fs.ErrNotExist.
func Open(ctx context.Context, dir string) (Set, error) {
	files, err := cache.ReadManifest(dir)
	if err == nil {
		err = cache.Check(ctx, dir, files)
	}
	if err != nil {
		return Set{}, err
	}
	return Set{dir: dir, files: files}, nil
}

// openSet is Open for the set of a list.
func openSet(ctx context.Context, dir string, l, pins list) (Set, error) {
	s, err := Open(ctx, filepath.Join(dir, setPrefix+l.digest()))
	if err != nil {
		return Set{}, err
	}
	for _, p := range l {
		s.Packages = append(s.Packages, p.String())
		if !slices.Contains(pins, p) {
			s.Replaced = append(s.Replaced, p.String())
		}
	}
	slices.Sort(s.Packages)
	slices.Sort(s.Replaced)
	return s, nil
}

// Root is the directory with the files.
func (s Set) Root() Root { return Root(s.dir) }

// File is a file of a set.
type File struct {
	Guest  string // path in the guest
	Path   string
	Sha256 string // in hex
}

func (s Set) file(name string) File {
	return File{"/" + name, filepath.Join(s.dir, filepath.FromSlash(name)), s.files[name]}
}

// Program finds a program by its name, as in the PATH of a guest.
func (s Set) Program(name string) (File, bool) {
	for _, dir := range []string{"usr/sbin", "usr/bin"} {
		if file := path.Join(dir, name); path.Base(name) == name && s.files[file] != "" {
			return s.file(file), true
		}
	}
	return File{}, false
}

// Compiler is clang, in a set with a compiler.
func (s Set) Compiler() (File, bool) { return s.file(clang), s.files[clang] != "" }

// Extensions are the extensions of iptables, sorted.
func (s Set) Extensions() (files []File) {
	for name := range s.files {
		if path.Dir(name) == extensionDir {
			files = append(files, s.file(name))
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Guest, b.Guest) })
	return files
}

// Sum is the SHA-256 of a file that Libraries found in the set, in hex; false for a file of another root.
func (s Set) Sum(file string) (string, bool) {
	name, err := filepath.Rel(s.dir, file)
	if err != nil {
		return "", false
	}
	sum, has := s.files[filepath.ToSlash(name)]
	return sum, has
}

// Entries returns the packages and the unpacked sets of a cache for a full check.
func Entries(dir string) ([]cache.Entry, error) {
	lock := filepath.Join(dir, cache.LockName)
	sets, err := cache.List(dir, func(path string) *cache.Entry { return setEntry(path, lock) })
	if err != nil {
		return nil, err
	}
	packages, err := cache.List(filepath.Join(dir, packagesDir), func(path string) *cache.Entry { return packageEntry(path, lock) })
	return append(sets, packages...), err
}

func setEntry(dir, lock string) *cache.Entry {
	switch name := filepath.Base(dir); {
	case name == packagesDir || name == listsDir: // with entries of their own; apt verifies lists
		return nil
	case strings.HasPrefix(name, unpackPrefix):
		return &cache.Entry{Path: dir, Lock: lock, State: cache.LeftOver, Why: "a process was killed while it unpacked packages"}
	case strings.HasPrefix(name, replacedPrefix):
		return &cache.Entry{Path: dir, Lock: lock, Check: func(context.Context, func(int)) error {
			_, err := readReplaced(dir)
			return err
		}}
	case !strings.HasPrefix(name, setPrefix):
		return cache.Foreign(dir)
	}
	e := &cache.Entry{Path: dir, Lock: lock}
	if files, err := cache.ReadManifest(dir); err == nil {
		e.Digest = "sha256 " + files.Digest()
	}
	e.Check = func(ctx context.Context, read func(int)) error {
		files, err := cache.ReadManifest(dir)
		if err != nil {
			return err
		}
		return cache.CheckAll(ctx, dir, files, read)
	}
	return e
}

func packageEntry(file, lock string) *cache.Entry {
	name := strings.TrimSuffix(filepath.Base(file), packageSuffix)
	sum := name[strings.LastIndexByte(name, '-')+1:]
	if !isSha256(sum) {
		return cache.Foreign(file)
	}
	return &cache.Entry{Path: file, Lock: lock, Digest: "sha256 " + sum, Check: func(ctx context.Context, read func(int)) error {
		return cache.CheckAll(ctx, file, cache.Manifest{cache.Itself: sum}, read)
	}}
}

// String is for messages.
func (s Set) String() string { return fmt.Sprintf("%d packages in %s", len(s.Packages), s.dir) }

package tools

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Root is a directory with programs and shared libraries at the paths of Debian. Host is that of this machine.
type Root string

// Host is the root of this machine.
const Host Root = "/"

// libraryDirs are where the loader of Debian looks for libraries.
var libraryDirs = []string{"/" + libraryDir, "/lib/x86_64-linux-gnu", "/usr/lib", "/lib"}

// libraryDir has the libraries of packages for x86-64.
const libraryDir = "usr/lib/x86_64-linux-gnu"

// MissingError is the error of a program whose library is in no root.
type MissingError struct {
	Library string // its name, as libc.so.6
	Program string // the file that needs it
}

// Error names both.
func (m *MissingError) Error() string {
	return fmt.Sprintf("%s needs the shared library %s, which is missing", m.Program, m.Library)
}

// Libraries returns the files of the loader and of all shared libraries that a program needs, by their paths in the guest. The first root
// that has a library counts. The error of a missing one is a *MissingError.
func Libraries(program string, roots ...Root) (map[string]string, error) {
	found := map[string]string{}
	return found, addLibraries(found, program, roots)
}

func addLibraries(found map[string]string, program string, roots []Root) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("reading the shared libraries of %s: %w", program, err)
	}
	defer f.Close()
	if section := f.Section(".interp"); section != nil {
		name, err := section.Data()
		if err != nil {
			return fmt.Errorf("reading the loader of %s: %w", program, err)
		}
		loader := strings.TrimRight(string(name), "\x00")
		if !addFirst(found, roots, loader) {
			return &MissingError{loader, program}
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the shared libraries of %s: %w", program, err)
	}
	for _, name := range needed {
		if err := addLibrary(found, program, name, roots); err != nil {
			return err
		}
	}
	return nil
}

// addFirst adds the file of the first root that has a path.
func addFirst(found map[string]string, roots []Root, path string) bool {
	for _, r := range roots {
		for _, name := range []string{path, merged(strings.TrimPrefix(path, "/"))} {
			file := filepath.Join(string(r), name)
			if _, err := os.Stat(file); err == nil {
				found[path] = file
				return true
			}
		}
	}
	return false
}

func addLibrary(found map[string]string, program, name string, roots []Root) error {
	for _, r := range roots {
		for _, dir := range libraryDirs {
			path := filepath.Join(dir, name)
			if _, has := found[path]; has {
				return nil
			}
			if addFirst(found, []Root{r}, path) {
				return addLibraries(found, found[path], roots)
			}
		}
	}
	return &MissingError{name, program}
}

// Dynamic reports whether a program in machine code needs a loader or shared libraries.
func Dynamic(program string) (bool, error) {
	f, err := elf.Open(program)
	if err != nil {
		return false, fmt.Errorf("reading the shared libraries of %s: %w", program, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return false, fmt.Errorf("reading the shared libraries of %s: %w", program, err)
	}
	loaded := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	return loaded || len(needed) > 0, nil
}

// Newer returns the roots with the one first whose C library is newer. Programs run with newer C libraries than those that they were built
// with, and not with older ones.
func Newer(a, b Root) ([]Root, error) {
	first, err := a.libc()
	if err != nil {
		return nil, err
	}
	second, err := b.libc()
	if err != nil {
		return nil, err
	}
	if second > first {
		return []Root{b, a}, nil
	}
	return []Root{a, b}, nil
}

// libc is 36 for version 2.36 of the GNU C library of the root; 0 without one.
func (r Root) libc() (minor int, err error) {
	found := map[string]string{}
	for _, dir := range libraryDirs {
		if !addFirst(found, []Root{r}, filepath.Join(dir, "libc.so.6")) {
			continue
		}
		f, err := elf.Open(found[filepath.Join(dir, "libc.so.6")])
		if err != nil {
			return 0, fmt.Errorf("reading the version of the C library in %s: %w", r, err)
		}
		defer f.Close()
		versions, err := f.DynamicVersions()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return 0, fmt.Errorf("reading the version of the C library in %s: %w", r, err)
		}
		for _, v := range versions {
			if number, is := strings.CutPrefix(v.Name, "GLIBC_2."); is {
				if n, err := strconv.Atoi(number); err == nil {
					minor = max(minor, n)
				}
			}
		}
		return minor, nil
	}
	return 0, nil
}

// isELF reports whether a file is a program or a library in machine code.
func isELF(file string) (bool, error) {
	f, err := elf.Open(file)
	var format *elf.FormatError
	switch {
	case err == nil:
		return true, f.Close()
	case errors.As(err, &format):
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	return false, nil // shorter than a header
}

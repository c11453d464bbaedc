package main

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// static are the flags of `make build`, which keep the place and time of the build out of the program.
var static = []string{"-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-ldflags", "-s -w"}

// build copies sources into a directory with a date as their time, builds the package there and returns the program.
func build(t *testing.T, sources, dir string, date time.Time, pkg string, flags ...string) string {
	t.Helper()
	copyTree(t, sources, dir, date)
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", program, pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-mod=mod", "GOWORK=off", "PWD="+dir, "TZ=Etc/GMT"+date.Format("-3"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chtimes(program, date, date); err != nil {
		t.Fatal(err)
	}
	return program
}

// copyTree copies files without those of builds, runs and git.
func copyTree(t *testing.T, from, to string, date time.Time) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "bin" || name == "out" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		if !d.Type().IsRegular() || name == ".git" { // a file in a work tree
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(to, name), date, date)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// makeImage makes the image of a program in a new directory, and returns the directory.
func makeImage(t *testing.T, program, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	if err := write(options{program: program, name: name, out: dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return dir
}

// read reads a file of a directory.
func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// differ names the files that differ between two directories with images.
func differ(t *testing.T, a, b string) string {
	t.Helper()
	var names []string
	for _, name := range []string{archiveFile, sbomFile} {
		if read(t, a, name) != read(t, b, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Two times of builds of the same sources.
var (
	once = time.Date(2019, 2, 3, 4, 5, 6, 7, time.UTC)
	then = time.Date(2031, 12, 30, 23, 59, 59, 0, time.UTC)
)

package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error is found on the platforms that have it, in programs and in tests, and nowhere else.
func TestErrorsOfOnePlatformAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.com/x\n\ngo 1.26\n",
		"all.go":            "package x\n\nimport \"os\"\n\n// Name is a name.\nfunc Name() string { return os.Args[0] + suffix }\n",
		"suffix_linux.go":   "package x\n\nconst suffix = \"\"\n",
		"suffix_darwin.go":  "package x\n\nconst suffix = 1\n",
		"x_windows.go":      "package x\n\nconst suffix = \".exe\"\n",
		"x_windows_test.go": "package x\n\nimport \"testing\"\n\nfunc TestName(t *testing.T) { t.Log(missing) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{"linux/arm64": "", "darwin/arm64": "suffix", "windows/amd64": "missing", "windows/amd64=.": "missing"} {
		var out bytes.Buffer
		n, err := check(dir, platform, &out)
		if err != nil || (n > 0) != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d errors, %v:\n%s", platform, n, err, out.String())
		}
	}
	if _, err := check(dir, "linux", &bytes.Buffer{}); err == nil {
		t.Error("a platform without a processor was accepted")
	}
}

// A package that cannot be found is an error, as is none at all: nothing would be checked.
func TestMissingPackagesAreErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/x\n\ngo 1.26\n")
	var out bytes.Buffer
	if n, err := check(dir, "linux/arm64", &out); err == nil {
		t.Errorf("a module without a package: %d errors\n%s", n, out.String())
	}
	write("x.go", "package x\n")
	for packages, want := range map[string]string{".": "", "./nothing": "nothing", "example.com/none": "example.com/none"} {
		out.Reset()
		n, err := check(dir, "linux/arm64="+packages, &out)
		if err != nil || (n > 0) != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d errors, %v:\n%s", packages, n, err, out.String())
		}
	}
}

// The bodies of functions are kept below the folder, and not in one whose name only begins like it.
func TestBodiesOfOwnFunctionsAreKept(t *testing.T) {
	read := parse("/sources/x")
	for name, kept := range map[string]bool{"/sources/x/a.go": true, "/sources/x/deep/a.go": true, "/sources/x2/a.go": false, "/go/a.go": false} {
		f, err := read(token.NewFileSet(), name, []byte("package a\n\nfunc A() {}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if has := f.Decls[0].(*ast.FuncDecl).Body != nil; has != kept {
			t.Errorf("%s: the body is kept: %v", name, has)
		}
	}
}

package tools

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// The pinned packages are listed once each, in order, and have the programs of guests, or of pods.
func TestThePinnedLists(t *testing.T) {
	checkPinned(t, pinned, OfGuests)
	checkPinned(t, pinnedForPods, OfPods)
}

func checkPinned(t *testing.T, text string, programs []string) {
	t.Helper()
	l, err := parseList(text)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range l {
		names = append(names, p.Name)
		if strings.Contains(p.Path, "updates") || !strings.HasPrefix(p.Path, "pool/main/") {
			t.Errorf("%s is at %s; security updates do not stay on mirrors", p, p.Path)
		}
	}
	sorted := slices.Sorted(slices.Values(names))
	if !slices.Equal(names, slices.Compact(sorted)) {
		t.Errorf("the names are %q", names)
	}
	for _, name := range programs {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestLists(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	good := "# NAME\n\ntool 1:2-3 amd64 " + sum + " pool/main/t/tool_2-3_amd64.deb\n"
	l, err := parseList(good)
	if err != nil || len(l) != 1 || l[0].String() != "tool_1:2-3" || l[0].file() != "tool_2-3_amd64-"+sum+".deb" {
		t.Fatalf("%v, %v", l, err)
	}
	if again, err := parseList(l.String()); err != nil || !slices.Equal(again, l) {
		t.Errorf("%v, %v", again, err)
	}
	for _, wrong := range []string{"tool 1 amd64 " + sum + "\n", "tool 1 arm64 " + sum + " pool/t.deb\n", "tool 1 amd64 0a pool/t.deb\n", "tool 1 amd64 " + strings.ToUpper(sum) + " pool/t.deb\n",
		"tool 1 amd64 " + sum + " pool/t.tar\n", "tool 1 amd64 " + sum + " pool/t.deb more\n"} {
		if l, err := parseList(good + wrong); err == nil || !strings.Contains(err.Error(), "line 4") {
			t.Errorf("%q is %v, %v", wrong, l, err)
		}
	}
}

func writeELF(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// The first root that has a library gives it, and what is in no root is an error that names it.
func TestLibrariesOfRoots(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	program := writeELF(t, a, "usr/bin/tool", testfiles.ELF(t, "tool", loader, "libone.so", "libtwo.so"))
	writeELF(t, a, "usr/lib64/ld.so", testfiles.ELF(t, "ld", ""))
	writeELF(t, a, libraryDir+"/libone.so", testfiles.ELF(t, "one of a", ""))
	_, err := Libraries(program, Root(a))
	var m *MissingError
	if !errors.As(err, &m) || m.Library != "libtwo.so" || m.Program != program {
		t.Fatalf("%v", err)
	}
	writeELF(t, b, libraryDir+"/libone.so", testfiles.ELF(t, "one of b", ""))
	writeELF(t, b, "usr/lib/libtwo.so", testfiles.ELF(t, "two", "", "libone.so"))
	for first, roots := range map[string][]Root{a: {Root(a), Root(b)}, b: {Root(b), Root(a)}} {
		found, err := Libraries(program, roots...)
		if err != nil || len(found) != 3 || found["/"+libraryDir+"/libone.so"] != filepath.Join(first, libraryDir, "libone.so") || found["/usr/lib/libtwo.so"] == "" || found[loader] == "" {
			t.Errorf("%v, %v", found, err)
		}
	}
	for content, want := range map[string]bool{testfiles.ELF(t, "", loader): true, testfiles.ELF(t, "", "", "libone.so"): true, testfiles.ELF(t, "", ""): false} {
		if is, err := Dynamic(writeELF(t, b, "tool", content)); err != nil || is != want {
			t.Errorf("it is dynamic: %t, %v", is, err)
		}
	}
	if _, err := Dynamic(writeELF(t, b, "tool", "#!/bin/sh\n")); err == nil {
		t.Error("a script is taken for a program in machine code")
	}
}

// Of two roots the one with the newer C library comes first.
func TestNewerCLibrary(t *testing.T) {
	if minor, err := Host.libc(); err != nil || minor == 0 {
		t.Skipf("this machine has no GNU C library at a path of Debian (%v)", err)
	}
	empty := Root(t.TempDir())
	for _, c := range [][2]Root{{Host, empty}, {empty, Host}} {
		roots, err := Newer(c[0], c[1])
		if err != nil || !slices.Equal(roots, []Root{Host, empty}) {
			t.Errorf("%v, %v", roots, err)
		}
	}
}

package site

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/build"
)

// goldenProgram is a program for linux/amd64 with build information: that of the tests themselves, for which the tests know the version.
func goldenProgram(t *testing.T) (content string, of module.Version) {
	t.Helper()
	if p := thisPlatform(); !p.guests() {
		t.Skipf("the tests are a program for %s/%s", p.os, p.arch)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), module.Version{Path: info.Main.Path, Version: info.Main.Version}
}

// On another platform guests execute the program beside, if it is for their platform and of the same version.
func TestTheProgramBeside(t *testing.T) {
	content, own := goldenProgram(t)
	other := own
	other.Version = "v9.9.9"
	for name, c := range map[string]struct {
		content string
		of      module.Version
		release string
		want    string // in the error; empty if it is used
	}{
		"of the same version":   {content, own, "", ""},
		"of another version":    {content, other, "", "v9.9.9"},
		"without information":   {testfiles.ELF(t, "a program", ""), own, "", guestProgramName},
		"no program for Linux":  {"a program", own, "", "no program for Linux"},
		"none, and no version":  {"", own, "", "make build"},
		"for another processor": {content[:18] + "\xb7\x00" + content[20:], own, "", "AARCH64"},
		"of no release":         {content, own, "v1.2.3/abc", "v1.2.3/abc"},
	} {
		dir := t.TempDir()
		if c.content != "" {
			if err := os.WriteFile(filepath.Join(dir, guestProgramName), []byte(c.content), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		l := &lab{Call: Call{Program: filepath.Join(dir, "hitless")}}
		file, err := l.guestProgram(t.Context(), platform{"linux", "arm64", c.of, c.release})
		if c.want == "" && (err != nil || file != filepath.Join(dir, guestProgramName)) || c.want != "" && (!isUsage(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v, want an error with %q", name, file, err, c.want)
		}
	}
	l := &lab{Call: Call{Program: "running"}}
	if file, err := l.guestProgram(t.Context(), platform{os: "linux", arch: "amd64", module: own}); err != nil || file != "running" {
		t.Errorf("on the platform of guests: %q, %v", file, err)
	}
}

// A released version without a program beside it is built once, for guests' platform. The stand-in of the go command tells what was asked for.
func TestTheProgramOfGuestsIsBuilt(t *testing.T) {
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	script := "#!/bin/sh\nif [ \"$1\" = env ]; then echo /modules; exit; fi\necho \"$GOOS $GOARCH $CGO_ENABLED $GOMODCACHE $*\" >>" + log +
		"\nmkdir -p $GOPATH/bin/linux_amd64\necho program >$GOPATH/bin/linux_amd64/hitless\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p := platform{os: "darwin", arch: "arm64", module: module.Version{Path: "example.org/hitless", Version: "v1.2.3"}}
	l := &lab{Call: Call{Program: filepath.Join(dir, "hitless")}, LabOptions: LabOptions{Cache: t.TempDir()}}
	read := func() string {
		t.Helper()
		file, err := l.guestProgram(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 2 {
		if text := read(); text != "program\n" {
			t.Errorf("the program is %q", text)
		}
	}
	calls, err := os.ReadFile(log)
	if want := "linux amd64 0 /modules install "; err != nil || !strings.HasPrefix(string(calls), want) || strings.Count(string(calls), "\n") != 1 ||
		!strings.HasSuffix(string(calls), " example.org/hitless/cmd/hitless@v1.2.3\n") {
		t.Errorf("the calls are %q, %v", calls, err)
	}
	built, _ := filepath.Glob(filepath.Join(l.Cache, "build/self/*/hitless"))
	if len(built) != 1 {
		t.Fatalf("the cache has %q", built)
	}
	testfiles.Damages()["one flipped byte"](t, built[0])
	if text := read(); text != "program\n" {
		t.Errorf("after the damage the program is %q", text)
	}
	if entries, err := build.Entries(filepath.Join(l.Cache, "build")); err != nil || len(entries) != 1 {
		t.Errorf("the entries are %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\necho no such version >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.Cache = t.TempDir()
	if file, err := l.guestProgram(t.Context(), p); !isUsage(err) || !strings.Contains(err.Error(), "no such version") {
		t.Errorf("%q, %v", file, err)
	}
	if left, _ := filepath.Glob(filepath.Join(l.Cache, "build/self/*hitless*")); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

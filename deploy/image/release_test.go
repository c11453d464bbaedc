package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// releasePlatforms are those of the test: each kind of archive, with and without an image.
var releasePlatforms = []string{"darwin/arm64", "linux/arm64", "windows/amd64"}

// releaseInput makes the input of a release of testdata/tiny, whose files have a date.
func releaseInput(t *testing.T, date time.Time) string {
	t.Helper()
	sources, in := filepath.Join(t.TempDir(), "sources"), filepath.Join(t.TempDir(), "in")
	copyTree(t, "testdata/tiny", sources, date)
	for _, platform := range releasePlatforms {
		system, processor, _ := strings.Cut(platform, "/")
		program := filepath.Join(in, system+"_"+processor, "tiny")
		if system == "windows" {
			program += ".exe"
		}
		cmd := exec.Command("go", append(append([]string{"build"}, static...), "-o", program, ".")...)
		cmd.Dir, cmd.Env = sources, append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor, "GOFLAGS=-mod=mod", "GOWORK=off", "PWD="+sources)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, date, date); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(in, "darwin_arm64", guestProgram), "of guests")
	for name, text := range map[string]string{"LICENSE": "a license", "man/man1/tiny.1": "a page"} {
		write(filepath.Join(in, "share", name), text)
	}
	return in
}

func releaseOf(t *testing.T, version, in string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "release")
	if err := release(releaseOptions{version, in, out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out
}

// Two releases of the same sources have the same bytes, wherever and whenever they were made. The checksums cover every file.
func TestReleasesAreReproducible(t *testing.T) {
	a, b := releaseOf(t, "v1.2.3", releaseInput(t, once)), releaseOf(t, "v1.2.3", releaseInput(t, then))
	if string(read(t, a, checksums)) != string(read(t, b, checksums)) {
		t.Errorf("the checksums differ:\n%s\n%s", read(t, a, checksums), read(t, b, checksums))
	}
	files, err := os.ReadDir(a)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range files {
		if f.Name() != checksums {
			lines = append(lines, fmt.Sprintf("%x  %s", sha256.Sum256([]byte(read(t, a, f.Name()))), f.Name()))
		}
	}
	if got := strings.TrimSpace(read(t, a, checksums)); got != strings.Join(lines, "\n") || len(lines) != 8 {
		t.Errorf("%d files; the checksums are\n%s\nwant\n%s", len(lines), got, strings.Join(lines, "\n"))
	}
}

// The red twin: one byte in a shared file changes all archives, and nothing else.
func TestOtherFilesGiveOtherArchives(t *testing.T) {
	in := releaseInput(t, once)
	a := releaseOf(t, "v1.2.3", in)
	if err := os.WriteFile(filepath.Join(in, "share", "LICENSE"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := releaseOf(t, "v1.2.3", in)
	was := strings.Split(read(t, a, checksums), "\n")
	for _, line := range strings.Split(strings.TrimSpace(read(t, b, checksums)), "\n") {
		archive := strings.HasSuffix(line, ".zip") || strings.HasSuffix(line, ".gz")
		if slices.Contains(was, line) == archive {
			t.Errorf("%s: the archive must differ, and only that", line)
		}
	}
}

// Archives have the program, which can be run, and the shared files, in a folder of their own.
func TestArchivesHaveAllFiles(t *testing.T) {
	out := releaseOf(t, "v1.2.3", releaseInput(t, once))
	want := []string{"LICENSE", "man/man1/tiny.1", "tiny"}
	for archive, files := range map[string][]string{"hitless_v1.2.3_linux_arm64": want, "hitless_v1.2.3_darwin_arm64": append([]string{guestProgram}, want...)} {
		z, err := gzip.NewReader(strings.NewReader(read(t, out, archive+".tar.gz")))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for name := range untar(t, z) {
			found = append(found, strings.TrimPrefix(name, archive+"/"))
		}
		if slices.Sort(found); !slices.Equal(found, slices.Sorted(slices.Values(files))) {
			t.Errorf("%s has %q, want %q", archive, found, files)
		}
	}
	text := read(t, out, "hitless_v1.2.3_windows_amd64.zip")
	r, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	if err != nil || len(r.File) != len(want) {
		t.Fatalf("%v: %d files", err, len(r.File))
	}
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, ".exe") && f.Mode().Perm() != 0o755 {
			t.Errorf("%s has the mode %s", f.Name, f.Mode())
		}
	}
}

// The SBOM of a program names the release, and has no image.
func TestProgramSBOM(t *testing.T) {
	out := releaseOf(t, "v1.2.3", releaseInput(t, once))
	var bom cdx.BOM
	if err := json.NewDecoder(bytes.NewReader([]byte(read(t, out, "hitless_v1.2.3_darwin_arm64.cdx.json")))).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c == nil || c.Type != cdx.ComponentTypeApplication || !strings.HasSuffix(c.PackageURL, "@v1.2.3") {
		t.Errorf("%+v", c)
	}
	if bom.Components == nil || len(*bom.Components) == 0 || (*bom.Components)[0].Name != "std" {
		t.Errorf("%+v", bom.Components)
	}
}

// A wrong version, a program in the wrong folder, and a missing program are refused.
func TestReleaseRefuses(t *testing.T) {
	in := releaseInput(t, once)
	refused := func(o releaseOptions, want string) {
		t.Helper()
		o.out = t.TempDir()
		if err := release(o, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	refused(releaseOptions{version: "1.2.3", in: in}, "v1.2.3")
	refused(releaseOptions{version: "v1.2.3", in: t.TempDir()}, "make release")
	if err := os.Rename(filepath.Join(in, "linux_arm64"), filepath.Join(in, "linux_amd64")); err != nil {
		t.Fatal(err)
	}
	refused(releaseOptions{version: "v1.2.3", in: in}, "linux_arm64")
}

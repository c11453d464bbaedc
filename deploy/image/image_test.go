package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // of go-digest
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Equal sources give equal images and SBOMs, whatever the place and time of the build.
func TestImagesAreReproducible(t *testing.T) {
	here := build(t, "testdata/tiny", filepath.Join(t.TempDir(), "here"), once, ".", static...)
	there := build(t, "testdata/tiny", filepath.Join(t.TempDir(), "far", "away"), then, ".", static...)
	if d := differ(t, makeImage(t, here, "tiny:v1"), makeImage(t, there, "tiny:v1")); d != "" {
		t.Errorf("%s differs between two directories and two dates", d)
	}
}

// The comparison detects a program that contains its build directory, and other sources.
func TestOtherSourcesGiveAnotherImage(t *testing.T) {
	dir := t.TempDir()
	good := makeImage(t, build(t, "testdata/tiny", filepath.Join(dir, "a"), once, ".", static...), "tiny:v1")
	leaky := build(t, "testdata/tiny", filepath.Join(dir, "b"), once, ".", "-buildvcs=false")
	if d := differ(t, good, makeImage(t, leaky, "tiny:v1")); !strings.Contains(d, archiveFile) {
		t.Errorf("%q differs when the program contains the directory of its sources; want %s", d, archiveFile)
	}
	copyTree(t, "testdata/tiny", filepath.Join(dir, "c"), once)
	source := strings.Replace(read(t, "testdata/tiny", "main.go"), `"tiny"`, `"other"`, 1)
	if err := os.WriteFile(filepath.Join(dir, "c", "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	other := build(t, filepath.Join(dir, "c"), filepath.Join(dir, "d"), once, ".", static...)
	if d := differ(t, good, makeImage(t, other, "tiny:v1")); d != archiveFile+", "+sbomFile {
		t.Errorf("%q differs with other sources", d)
	}
}

// The digest does not depend on the name, which is an annotation of the index.
func TestDigestIsIndependentOfTheName(t *testing.T) {
	program := build(t, "testdata/tiny", t.TempDir(), once, ".", static...)
	a, b := makeImage(t, program, "tiny:v1"), makeImage(t, program, "registry.example.com/team/tiny:v2")
	if d := differ(t, a, b); d != archiveFile {
		t.Errorf("%q differs with another name; want the archive, which has the name, and not the SBOM, which has the digest", d)
	}
	one, other := open(t, a), open(t, b)
	if one.index.Manifests[0].Digest != other.index.Manifests[0].Digest {
		t.Error("another name gives another digest")
	}
	for want, l := range map[string]layout{"docker.io/library/tiny:v1": one, "registry.example.com/team/tiny:v2": other, "docker.io/team/tiny:v3": open(t, makeImage(t, program, "team/tiny:v3"))} {
		if got := l.index.Manifests[0].Annotations[annotationContainerd]; got != want {
			t.Errorf("containerd sees the name %s, want %s", got, want)
		}
	}
}

// layout is the content of an archive.
type layout struct {
	files map[string][]byte
	index v1.Index
}

func open(t *testing.T, dir string) layout {
	t.Helper()
	l := layout{files: untar(t, strings.NewReader(read(t, dir, archiveFile)))}
	decode(t, l.files["index.json"], &l.index)
	if len(l.index.Manifests) != 1 {
		t.Fatalf("the index has %d manifests, want 1", len(l.index.Manifests))
	}
	return l
}

// blob returns a blob that matches its descriptor.
func (l layout) blob(t *testing.T, d v1.Descriptor) []byte {
	t.Helper()
	data := l.files["blobs/sha256/"+d.Digest.Encoded()]
	if digest.FromBytes(data) != d.Digest || int64(len(data)) != d.Size {
		t.Fatalf("the blob of %s has %d bytes and the digest %s, want %d and %s", d.MediaType, len(data), digest.FromBytes(data), d.Size, d.Digest)
	}
	return data
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uname+h.Gname != "" || h.Uid+h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %s:%s (%d:%d) since %s", h.Name, h.Uname, h.Gname, h.Uid, h.Gid, h.ModTime)
		}
		files[h.Name] = data
	}
}

// The index of the layout refers to an image with the program, and the user is not root.
func TestLayoutLeadsToTheProgram(t *testing.T) {
	program := build(t, "testdata/tiny", t.TempDir(), once, ".", static...)
	l := open(t, makeImage(t, program, "tiny:v1"))
	var head v1.ImageLayout
	decode(t, l.files["oci-layout"], &head)
	if head.Version != "1.0.0" {
		t.Errorf("layout version %q", head.Version)
	}
	var manifest v1.Manifest
	decode(t, l.blob(t, l.index.Manifests[0]), &manifest)
	var config v1.Image
	decode(t, l.blob(t, manifest.Config), &config)
	if len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
		t.Fatalf("%d layers, %d of them in the configuration; want 1", len(manifest.Layers), len(config.RootFS.DiffIDs))
	}
	z, err := gzip.NewReader(bytes.NewReader(l.blob(t, manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || digest.FromBytes(plain) != config.RootFS.DiffIDs[0] {
		t.Fatalf("the layer does not have the digest of the configuration (%v)", err)
	}
	rootfs := untar(t, bytes.NewReader(plain))
	if want := read(t, filepath.Dir(program), "program"); string(rootfs["hitless"]) != want {
		t.Error("the program in the image differs from the given one")
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/hitless"}) || config.OS != "linux" || config.Architecture == "" {
		t.Errorf("%+v", config)
	}
	if l.index.Manifests[0].Platform.Architecture != config.Architecture {
		t.Error("index and configuration have different architectures")
	}
}

// manifest.json, which Docker before version 25 reads, refers to the same blobs.
func TestDockerManifestRefersToTheSameBlobs(t *testing.T) {
	l := open(t, makeImage(t, build(t, "testdata/tiny", t.TempDir(), once, ".", static...), "tiny:v1"))
	var all []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	decode(t, l.files["manifest.json"], &all)
	var manifest v1.Manifest
	decode(t, l.blob(t, l.index.Manifests[0]), &manifest)
	if len(all) != 1 || !slices.Equal(all[0].RepoTags, []string{"tiny:v1"}) || all[0].Config != "blobs/sha256/"+manifest.Config.Digest.Encoded() ||
		!slices.Equal(all[0].Layers, []string{"blobs/sha256/" + manifest.Layers[0].Digest.Encoded()}) {
		t.Errorf("%+v", all)
	}
}

// Programs that would not start and invalid names are refused with advice.
func TestInvalidOptions(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := build(t, "testdata/tiny", filepath.Join(dir, "a"), once, ".", static...)
	windows := filepath.Join(dir, "windows")
	cmd := exec.Command("go", "build", "-o", windows, ".")
	cmd.Dir, cmd.Env = filepath.Join(dir, "a"), append(os.Environ(), "CGO_ENABLED=0", "GOOS=windows", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for what, c := range map[string]struct {
		o    options
		want string
	}{
		"no file":             {options{program: filepath.Join(dir, "none"), name: "a:b"}, "make build"},
		"no program":          {options{program: text, name: "a:b"}, "Go has built"},
		"another system's":    {options{program: windows, name: "a:b"}, "GOOS=linux"},
		"a name without tag":  {options{program: good, name: "hitless"}, "hitless:v1"},
		"a name in capitals":  {options{program: good, name: "Hitless:v1"}, "hitless:v1"},
		"no place to write":   {options{program: good, name: "a:b", out: filepath.Join(text, "under")}, "--out"},
		"a name with a space": {options{program: good, name: "a b:c"}, "hitless:v1"},
	} {
		if err := write(c.o, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

package foreign

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Readers of an OCI layout and of a Docker archive find the same valid image.
func TestReadersOfBothFormats(t *testing.T) {
	dir := t.TempDir()
	for _, words := range [][]string{
		{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/program", "."},
		{"run", ".", "-program", dir + "/program", "-name", "hitless:v1", "-out", dir},
	} {
		cmd := exec.Command("go", words...)
		cmd.Dir, cmd.Env = "../image", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	archive := filepath.Join(dir, "hitless.oci.tar")
	unpack(t, archive, filepath.Join(dir, "layout"))
	path, err := layout.FromPath(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the layout: %v", err)
	}
	saved, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(saved); err != nil {
		t.Errorf("as Docker saves it: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v: %+v", err, manifest)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	one, err := image.ConfigName()
	other, err2 := saved.ConfigName()
	if errors.Join(err, err2) != nil || one != other {
		t.Errorf("the layout has the image %s, Docker's manifest %s (%v)", one, other, errors.Join(err, err2))
	}
}

func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, h.Name)
		if strings.HasSuffix(h.Name, "/") {
			err = os.MkdirAll(name, 0o755)
		} else {
			var file []byte
			if file, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(name, file, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	spec "github.com/opencontainers/image-spec/specs-go/v1"
)

// user is the numeric user of the program, so that Kubernetes can verify runAsNonRoot.
const user = 65532

var labels = map[string]string{
	spec.AnnotationTitle:       "hitless",
	spec.AnnotationDescription: "Does this Kubernetes Service proxy drop connections when something changes?",
	spec.AnnotationLicenses:    "Apache-2.0",
}

// newImage returns an OCI image of one layer. It is a function of the program alone.
func newImage(p *program) (v1.Image, error) {
	files, err := rootFS(p)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compressing the layer: %w", err)
	}
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Created:      v1.Time{Time: time.Unix(0, 0).UTC()}, // some tools require a time
		OS:           "linux",
		Architecture: p.arch,
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", user, user),
			Entrypoint: []string{"/hitless"},
			Env:        []string{"PATH=/", "HOME=/tmp", "HITLESS_CACHE=/tmp/hitless"},
			WorkingDir: "/data",
			Labels:     labels,
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		return nil, fmt.Errorf("assembling the image: %w", err)
	}
	return mutate.Annotations(img, labels).(v1.Image), nil
}

// rootFS is the layer as a tar: the program, the names of its user and group, and two directories that every user can write.
func rootFS(p *program) ([]byte, error) {
	var b bytes.Buffer
	t := newTar(&b)
	t.directory("etc/", 0o755)
	t.file("etc/group", 0o644, fmt.Appendf(nil, "hitless:x:%d:\n", user))
	t.file("etc/passwd", 0o644, fmt.Appendf(nil, "hitless:x:%[1]d:%[1]d::/tmp:/sbin/nologin\n", user))
	t.file("hitless", 0o755, p.bytes)
	t.directory("tmp/", 0o1777)
	t.directory("data/", 0o1777)
	err := t.close()
	return b.Bytes(), err
}

// annotationContainerd is the annotation from which containerd and Docker read the full name of an image in an archive.
const annotationContainerd = "io.containerd.image.name"

// writeArchive writes the image as a tar of an OCI image layout, with a manifest.json for `docker load` before version 25 and for
// its classic store. go-containerregistry writes either format, but not both in one archive.
func writeArchive(w io.Writer, img v1.Image, tag name.Tag) error {
	blobs, docker, err := contents(img, tag)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	index, err := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
		Platform:    config.Platform(),
		Annotations: map[string]string{annotationContainerd: containerdName(tag), spec.AnnotationRefName: tag.TagStr()}}}).RawManifest()
	if err != nil {
		return err
	}
	layout, err := json.Marshal(spec.ImageLayout{Version: spec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	t := newTar(w)
	t.directory("blobs/", 0o755)
	t.directory("blobs/sha256/", 0o755)
	for _, path := range slices.Sorted(maps.Keys(blobs)) {
		t.file(path, 0o644, blobs[path])
	}
	t.file("index.json", 0o644, index)
	t.file("manifest.json", 0o644, docker)
	t.file(spec.ImageLayoutFile, 0o644, layout)
	return t.close()
}

// contents returns the blobs of an image by their paths in the layout, and the manifest.json of Docker that refers to them.
func contents(img v1.Image, tag name.Tag) (blobs map[string][]byte, docker []byte, err error) {
	blobs = map[string][]byte{}
	add := func(data []byte) string {
		hash, _, _ := v1.SHA256(bytes.NewReader(data)) // a reader of memory has no errors
		path := blobPath(hash)
		blobs[path] = data
		return path
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, nil, err
	}
	add(manifest)
	d := tarball.Descriptor{Config: add(config), RepoTags: []string{tag.String()}}
	for _, l := range layers {
		data, err := compressed(l)
		if err != nil {
			return nil, nil, err
		}
		d.Layers = append(d.Layers, add(data))
	}
	docker, err = json.Marshal(tarball.Manifest{d})
	return blobs, docker, err
}

// compressed returns a layer as it stands in an image.
func compressed(l v1.Layer) ([]byte, error) {
	r, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	defer r.Close() // only of reading
	return io.ReadAll(r)
}

func blobPath(h v1.Hash) string { return spec.ImageBlobsDir + "/" + h.Algorithm + "/" + h.Hex }

// parseTag reads the name of an image with a tag.
func parseTag(text string) (name.Tag, error) {
	tag, err := name.NewTag(text, name.WithDefaultTag(""))
	if err != nil {
		return tag, fmt.Errorf("%w; give a name such as hitless:v1 or registry.example.com/team/hitless:v1", err)
	}
	if tag.TagStr() == "" {
		return tag, fmt.Errorf("%q has no tag; give a name such as hitless:v1 or registry.example.com/team/hitless:v1", text)
	}
	return tag, nil
}

// containerdName is the full name of an image with Docker Hub's host as containerd writes it.
func containerdName(tag name.Tag) string {
	if rest, hub := strings.CutPrefix(tag.Name(), name.DefaultRegistry+"/"); hub {
		return "docker.io/" + rest
	}
	return tag.Name()
}

// tarWriter writes files of root with time 0. The first error stops it.
type tarWriter struct {
	w   *tar.Writer
	err error
}

func newTar(w io.Writer) *tarWriter { return &tarWriter{w: tar.NewWriter(w)} }

func (t *tarWriter) directory(name string, mode int64) {
	t.write(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil)
}

func (t *tarWriter) file(name string, mode int64, data []byte) {
	t.write(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data)
}

func (t *tarWriter) write(h *tar.Header, data []byte) {
	h.Format, h.ModTime = tar.FormatUSTAR, time.Unix(0, 0)
	if t.err == nil {
		t.err = t.w.WriteHeader(h)
	}
	if t.err == nil {
		_, t.err = t.w.Write(data)
	}
}

func (t *tarWriter) close() error {
	if t.err != nil {
		return t.err
	}
	return t.w.Close()
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"time"

	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// user is who the program is in the image: nobody that a node knows, by number so that Kubernetes can see that it is not root.
const user = 65532

// image is an OCI image of one layer, with all of its blobs in memory.
type image struct {
	layer, config, manifest v1.Descriptor
	blobs                   map[digest.Digest][]byte
}

// newImage makes the image of a program.
func newImage(p *program) (*image, error) {
	plain, err := rootFS(p)
	if err != nil {
		return nil, err
	}
	packed, err := pack(plain)
	if err != nil {
		return nil, err
	}
	img := &image{blobs: map[digest.Digest][]byte{}}
	img.layer = img.add(v1.MediaTypeImageLayerGzip, packed)
	labels := map[string]string{
		v1.AnnotationTitle:       "hitless",
		v1.AnnotationDescription: "Does this Kubernetes Service proxy drop connections when something changes?",
		v1.AnnotationLicenses:    "Apache-2.0",
	}
	begin := time.Unix(0, 0).UTC() // some tools want a time, and no other is a function of the program
	config := v1.Image{
		Created:  &begin,
		Platform: v1.Platform{OS: "linux", Architecture: p.arch},
		Config: v1.ImageConfig{
			User:       fmt.Sprintf("%d:%d", user, user),
			Entrypoint: []string{"/hitless"},
			Env:        []string{"PATH=/", "HOME=/tmp", "HITLESS_CACHE=/tmp/hitless"},
			WorkingDir: "/data",
			Labels:     labels,
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}},
	}
	if img.config, err = img.addJSON(v1.MediaTypeImageConfig, config); err != nil {
		return nil, err
	}
	img.manifest, err = img.addJSON(v1.MediaTypeImageManifest, v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest, Config: img.config, Layers: []v1.Descriptor{img.layer}, Annotations: labels})
	img.manifest.Platform = &config.Platform
	return img, err
}

// rootFS is the image's file system as a tar: the program, the user's name, and two folders that anybody may write to.
func rootFS(p *program) ([]byte, error) {
	var b bytes.Buffer
	t := newTar(&b)
	t.folder("etc/", 0o755)
	t.file("etc/group", 0o644, fmt.Appendf(nil, "hitless:x:%d:\n", user))
	t.file("etc/passwd", 0o644, fmt.Appendf(nil, "hitless:x:%[1]d:%[1]d::/tmp:/sbin/nologin\n", user))
	t.file("hitless", 0o755, p.bytes)
	t.folder("tmp/", 0o1777)
	t.folder("data/", 0o1777)
	err := t.close() // which writes the end
	return b.Bytes(), err
}

// pack compresses a layer. Without a name and a time in its head, gzip is a function of what it packs.
func pack(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(plain); err != nil {
		return nil, err
	}
	err = z.Close() // which writes the end
	return b.Bytes(), err
}

func (img *image) add(mediaType string, blob []byte) v1.Descriptor {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(blob), Size: int64(len(blob))}
	img.blobs[d.Digest] = blob
	return d
}

func (img *image) addJSON(mediaType string, value any) (v1.Descriptor, error) {
	blob, err := json.Marshal(value)
	return img.add(mediaType, blob), err
}

// tarWriter writes a tar of files that belong to root and have no time. The first error stops it.
type tarWriter struct {
	w   *tar.Writer
	err error
}

func newTar(w io.Writer) *tarWriter { return &tarWriter{w: tar.NewWriter(w)} }

func (t *tarWriter) folder(name string, mode int64) {
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

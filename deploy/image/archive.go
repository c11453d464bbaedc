package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameOfContainerd is the annotation by which containerd and Docker know the whole name of an image in an archive.
const nameOfContainerd = "io.containerd.image.name"

// archive writes the image as a tar of an OCI image layout (image-spec, image-layout.md), which skopeo, podman, crane and
// containerd take. The file manifest.json beside it is the one that Docker has asked for before it knew the layout (before
// version 25, and in its classic store), so that `docker load` takes it too.
func (img *image) archive(w io.Writer, name, full string) error {
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	at := img.manifest
	at.Annotations = map[string]string{nameOfContainerd: full, v1.AnnotationRefName: full[strings.LastIndex(full, ":")+1:]}
	index, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{at}})
	if err != nil {
		return err
	}
	docker, err := json.Marshal([]map[string]any{{"Config": blobPath(img.config.Digest), "RepoTags": []string{name}, "Layers": []string{blobPath(img.layer.Digest)}}})
	if err != nil {
		return err
	}
	t := newTar(w)
	t.folder("blobs/", 0o755)
	t.folder("blobs/sha256/", 0o755)
	for _, d := range slices.Sorted(maps.Keys(img.blobs)) {
		t.file(blobPath(d), 0o644, img.blobs[d])
	}
	t.file("index.json", 0o644, index)
	t.file("manifest.json", 0o644, docker)
	t.file(v1.ImageLayoutFile, 0o644, layout)
	return t.close()
}

func blobPath(d digest.Digest) string {
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// reference is a name of an image with a tag, in the words of the distribution specification.
var reference = regexp.MustCompile(`^([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// fullName is the name with the host and the folder that Docker adds to one without them.
func fullName(name string) (string, error) {
	if !reference.MatchString(name) {
		return "", fmt.Errorf("%q is no name of an image with a tag; give one such as hitless:v1 or registry.example.com/team/hitless:v1", name)
	}
	host, _, folder := strings.Cut(name, "/")
	switch {
	case !folder:
		return "docker.io/library/" + name, nil
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return "docker.io/" + name, nil
	}
	return name, nil
}

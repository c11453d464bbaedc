package site

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/images"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
)

// addImages adds the layers of the images that pods can run.
func (l *lab) addImages(ctx context.Context, img *vm.Image) error {
	// Upstream publishes these programs in images only, which nothing here can pull.
	builder := &build.Builder{Cache: filepath.Join(l.Cache, "build"), Prebuilt: l.Binaries, Progress: Building(l.Progress)}
	if err := l.expect(ctx, builder, images.Targets()); err != nil {
		return UsageError{Reason: err}
	}
	binaries, err := builder.Build(ctx, images.Targets()...)
	if err != nil {
		return UsageError{Reason: err}
	}
	for _, b := range binaries {
		at := path.Join(images.Dir, b.Target.Name, b.Target.Name)
		if err := img.AddWithSum(at, b.Path, 0o755, b.Sha256); err != nil {
			return err
		}
	}
	img.Link(path.Join(images.Dir, "agnhost", "agnhost-2"), "agnhost")
	cert, key, err := images.Localhost(time.Now())
	if err != nil {
		return err
	}
	img.Text(path.Join(images.Dir, "agnhost", "localhost.crt"), cert)
	img.Text(path.Join(images.Dir, "agnhost", "localhost.key"), key)
	set, err := tools.Fetch(ctx, ToolsDir(l.Cache), tools.ForPods, l.message)
	if err != nil {
		return UsageError{Reason: err}
	}
	return addClients(img, set)
}

// addClients adds the layer with a shell and clients.
func addClients(img *vm.Image, set tools.Set) error {
	base := path.Join(images.Dir, images.Base)
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		img.Link(path.Join(base, dir), "usr/"+dir)
	}
	for _, name := range images.Clients() {
		f, has := set.Program(name)
		if !has {
			return fmt.Errorf("the packages for pods have no program %s", name)
		}
		if err := img.AddWithSum(path.Join(base, "usr/bin", name), f.Path, 0o755, f.Sha256); err != nil {
			return err
		}
		libraries, err := tools.Libraries(f.Path, set.Root())
		if err != nil {
			return UsageError{Reason: err}
		}
		for _, library := range slices.Sorted(maps.Keys(libraries)) {
			sum, _ := set.Sum(libraries[library]) // the only root
			if err := img.AddWithSum(path.Join(base, inUsr(library)), libraries[library], 0o755, sum); err != nil {
				return err
			}
		}
	}
	for _, applet := range images.Links() {
		img.Link(path.Join(base, "usr/bin", applet), "busybox")
	}
	img.Link(path.Join(base, "usr/bin/nc"), "nc.openbsd")
	img.Text(path.Join(base, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	img.Text(path.Join(base, "etc/group"), "root:x:0:\nnobody:x:65534:\n")
	img.Text(path.Join(base, "etc/wgetrc"), "tries = 1\n") // as busybox's wget, which upstream's images have
	img.Text(path.Join(base, "etc/nsswitch.conf"), "hosts: files dns\n")
	return nil
}

// inUsr is a path of a library in a merged /usr.
func inUsr(library string) string {
	if path.Dir(library) == "/usr" || strings.HasPrefix(library, "/usr/") {
		return library
	}
	return path.Join("/usr", library)
}

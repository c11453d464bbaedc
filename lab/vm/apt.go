package vm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/lab/debian"
)

// KernelPackage is the Debian package that depends on the newest kernel of a release of Debian.
const KernelPackage = "linux-image-cloud-amd64"

// suite is a release of Debian.
type suite struct {
	debian.Suite
	version string // begin of its kernels' versions; empty where it changes
}

var suites = func() (all []suite) {
	versions := map[string]string{"debian-11": "5.10.", "debian-12": "6.1.", "debian-13": "6.12."}
	for _, s := range debian.Suites {
		all = append(all, suite{s, versions[s.Name]})
	}
	return all
}()

// has reports whether a cached kernel is one of this release.
func (s suite) has(id string) bool {
	name, version, _ := strings.Cut(id, "_")
	if !strings.HasPrefix(name, "linux-image-") || name+"_" == fromFiles {
		return false
	}
	if s.version != "" {
		return strings.HasPrefix(version, s.version)
	}
	for _, other := range suites {
		if other.version != "" && other.has(id) {
			return false
		}
	}
	return true
}

// fetch returns the newest kernel that the package lists of the release name. Without them it is the newest cached one.
func (s suite) fetch(ctx context.Context, cacheDir string, progress func(string)) (Kernel, error) {
	a, err := s.Lists(ctx, filepath.Join(cacheDir, listsDir), progress)
	var image packageID
	if err == nil {
		image, err = newestImage(ctx, a)
	}
	if err != nil {
		if k, cached := newestKernel(ctx, cacheDir, s.has, progress); cached {
			return k, nil
		}
		return Kernel{}, needsApt(err)
	}
	return fetchImage(ctx, a, image, cacheDir, progress)
}

// needsApt tells how to do without apt, where it is missing.
func needsApt(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("finding the guest's kernel: %w; kernels of Debian need apt; elsewhere give --guest-kernel a directory", err)
	}
	return err
}

// packageID is a package of the lists.
type packageID struct{ name, version string }

func (p packageID) String() string { return p.name + "_" + p.version }

// newestImage returns the package that the meta package depends on. One call of apt-cache serves both name and version, since each takes
// most of a second.
func newestImage(ctx context.Context, a debian.Apt) (packageID, error) {
	meta, err := a.Show(ctx, KernelPackage)
	if ctx.Err() != nil || errors.Is(err, exec.ErrNotFound) {
		return packageID{}, err
	}
	for item := range strings.SplitSeq(debian.Field(meta, "Depends:"), ", ") {
		name, version, exact := strings.Cut(item, " (= ")
		version, closed := strings.CutSuffix(version, ")")
		if strings.HasPrefix(name, "linux-image-") && exact && closed {
			return packageID{name, version}, nil
		}
	}
	if a.Name() != "" {
		return packageID{}, fmt.Errorf("finding the kernel package %s in the package lists of %s: they do not have it", KernelPackage, a.Name())
	}
	return packageID{}, fmt.Errorf("finding the kernel package %s: the package lists do not have it; run `apt-get update` as root, then try again", KernelPackage)
}

// ListedKernel returns the kernel package that the package lists of this machine name. The error says how to get lists that have one.
func ListedKernel(ctx context.Context) (id string, err error) {
	image, err := newestImage(ctx, debian.Apt{})
	return image.String(), needsApt(err)
}

// ReadyKernel tells which kernel package a guest would boot by default, and downloads nothing.
func ReadyKernel(ctx context.Context, cacheDir string) (text string, err error) {
	c, _ := ParseKernelChoice(DefaultKernel) // it has no error
	if c.suite.Own() {
		if text, err = ListedKernel(ctx); err == nil {
			return text, nil
		}
	}
	if k, cached := newestKernel(ctx, cacheDir, c.suite.has, func(string) {}); cached {
		return k.Package, nil
	}
	if err == nil {
		text = "the newest of " + DefaultKernel + ", which the first run fetches with package lists of its own"
	}
	return text, err
}

// fetchNamed returns the kernel of a package of this machine's lists by its name.
func fetchNamed(ctx context.Context, name, cacheDir string, progress func(string)) (Kernel, error) {
	a := debian.Apt{}
	text, err := a.Show(ctx, name)
	if ctx.Err() != nil {
		return Kernel{}, context.Cause(ctx)
	}
	version := debian.Field(text, "Version:")
	if err != nil || version == "" {
		return Kernel{}, fmt.Errorf("the package lists have no %s", name)
	}
	return fetchImage(ctx, a, packageID{name, version}, cacheDir, progress)
}

func fetchImage(ctx context.Context, a debian.Apt, image packageID, cacheDir string, progress func(string)) (Kernel, error) {
	return fetchKernel(ctx, cacheDir, image.String(), "downloading the kernel package "+image.String(), progress, func(work string) (string, error) {
		names, err := parts(ctx, a, image.name)
		if err != nil {
			return "", err
		}
		files, err := a.Download(ctx, work, names...)
		if err != nil {
			return "", err
		}
		return extract(ctx, work, files)
	})
}

// parts are the packages of a kernel. Debian from 14 on and Ubuntu have its image and its modules in several, which the first one depends
// on, and Ubuntu has more modules in one that it does not depend on.
func parts(ctx context.Context, a debian.Apt, image string) ([]string, error) {
	text, err := a.Show(ctx, image)
	if err != nil {
		return nil, err
	}
	release := strings.TrimPrefix(image, "linux-image-")
	names := append([]string{image}, dependencies(text, release)...)
	extra := "linux-modules-extra-" + release
	_, err = a.Show(ctx, extra)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil {
		names = append(names, extra)
	}
	return names, nil
}

// dependencies are the packages of the same kernel that a package depends on.
func dependencies(text, release string) (names []string) {
	for item := range strings.SplitSeq(debian.Field(text, "Depends:"), ", ") {
		name, _, _ := strings.Cut(item, " ")
		if strings.HasPrefix(name, "linux-") && strings.HasSuffix(name, "-"+release) {
			names = append(names, name)
		}
	}
	return names
}

// listsDir is the directory in that of the kernels with the package lists of other releases of Debian than this machine's.
const listsDir = "lists"

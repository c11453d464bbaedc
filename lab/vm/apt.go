package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// KernelPackage is the Debian package that depends on the newest kernel of a release of Debian.
const KernelPackage = "linux-image-cloud-amd64"

// suite is a release of Debian.
type suite struct {
	name, codename string
	version        string // begin of its kernels' versions; empty where it changes
}

var suites = []suite{{"debian-11", "bullseye", "5.10."}, {"debian-12", "bookworm", "6.1."}, {"debian-13", "trixie", "6.12."}, {"debian-sid", "sid", ""}}

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
	a, err := s.lists(ctx, filepath.Join(cacheDir, listsDir), progress)
	var image packageID
	if err == nil {
		image, err = a.newestImage(ctx)
	}
	if err != nil {
		if k, cached := newestKernel(ctx, cacheDir, s.has, progress); cached {
			return k, nil
		}
		return Kernel{}, err
	}
	return a.fetch(ctx, image, cacheDir, progress)
}

// apt calls apt's programs, which verify lists and packages by their signatures and digests.
type apt struct {
	config string // of private package lists; empty for those of this machine
}

func (a apt) output(ctx context.Context, dir, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("finding the guest's kernel: %w; kernels of Debian need apt; elsewhere give --guest-kernel a directory", err)
	}
	if a.config != "" {
		args = append([]string{"-c", a.config}, args...)
	}
	return output(ctx, dir, program, args...)
}

// packageID is a package of the lists.
type packageID struct{ name, version string }

func (p packageID) String() string { return p.name + "_" + p.version }

// newestImage returns the package that the meta package depends on. One call of apt-cache serves both name and version, since each takes
// most of a second.
func (a apt) newestImage(ctx context.Context) (packageID, error) {
	meta, err := a.output(ctx, "", "apt-cache", "show", "--no-all-versions", KernelPackage)
	if ctx.Err() != nil || errors.Is(err, exec.ErrNotFound) {
		return packageID{}, err
	}
	for item := range strings.SplitSeq(field(meta, "Depends:"), ", ") {
		name, version, exact := strings.Cut(item, " (= ")
		version, closed := strings.CutSuffix(version, ")")
		if strings.HasPrefix(name, "linux-image-") && exact && closed {
			return packageID{name, version}, nil
		}
	}
	if a.config != "" {
		return packageID{}, fmt.Errorf("finding the kernel package %s in the package lists of %s: they do not have it", KernelPackage, filepath.Base(filepath.Dir(a.config)))
	}
	return packageID{}, fmt.Errorf("finding the kernel package %s: the package lists do not have it; run `apt-get update` as root, then try again", KernelPackage)
}

// ListedKernel returns the kernel package that the package lists of this machine name. The error says how to get lists that have one.
func ListedKernel(ctx context.Context) (id string, err error) {
	image, err := apt{}.newestImage(ctx)
	return image.String(), err
}

// ReadyKernel returns the kernel package that a guest would boot by default, and downloads nothing.
func ReadyKernel(ctx context.Context, cacheDir string) (id string, err error) {
	if id, err = ListedKernel(ctx); err != nil {
		c, _ := ParseKernelChoice(DefaultKernel) // it has no error
		if k, cached := newestKernel(ctx, cacheDir, c.suite.has, func(string) {}); cached {
			return k.Package, nil
		}
	}
	return id, err
}

// fetchImage returns the kernel of a package by its name.
func (a apt) fetchImage(ctx context.Context, name, cacheDir string, progress func(string)) (Kernel, error) {
	text, err := a.output(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if ctx.Err() != nil {
		return Kernel{}, context.Cause(ctx)
	}
	version := field(text, "Version:")
	if err != nil || version == "" {
		return Kernel{}, fmt.Errorf("the package lists have no %s", name)
	}
	return a.fetch(ctx, packageID{name, version}, cacheDir, progress)
}

func (a apt) fetch(ctx context.Context, image packageID, cacheDir string, progress func(string)) (Kernel, error) {
	return fetchKernel(ctx, cacheDir, image.String(), "downloading the kernel package "+image.String(), progress, func(work string) (string, error) {
		names, err := a.parts(ctx, image.name)
		if err != nil {
			return "", err
		}
		if _, err := a.output(ctx, work, "apt-get", append([]string{"download"}, names...)...); err != nil {
			return "", err
		}
		files, _ := filepath.Glob(filepath.Join(work, "*.deb"))
		if len(files) != len(names) {
			return "", fmt.Errorf("apt-get download left %d packages, want %d", len(files), len(names))
		}
		return extract(ctx, work, files)
	})
}

// parts are the packages of a kernel. Debian from 14 on and Ubuntu have its image and its modules in several, which the first one depends
// on, and Ubuntu has more modules in one that it does not depend on.
func (a apt) parts(ctx context.Context, image string) ([]string, error) {
	text, err := a.output(ctx, "", "apt-cache", "show", "--no-all-versions", image)
	if err != nil {
		return nil, err
	}
	release := strings.TrimPrefix(image, "linux-image-")
	names := append([]string{image}, dependencies(text, release)...)
	extra := "linux-modules-extra-" + release
	_, err = a.output(ctx, "", "apt-cache", "show", "--no-all-versions", extra)
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
	for item := range strings.SplitSeq(field(text, "Depends:"), ", ") {
		name, _, _ := strings.Cut(item, " ")
		if strings.HasPrefix(name, "linux-") && strings.HasSuffix(name, "-"+release) {
			names = append(names, name)
		}
	}
	return names
}

// listsDir is the directory in that of the kernels with the package lists of other releases of Debian than this machine's.
const listsDir = "lists"

// listsAge is the age from which package lists are fetched again.
const listsAge = 24 * time.Hour

// lists returns the package lists of the release: those of this machine if it is one of them, else private ones in dir.
func (s suite) lists(ctx context.Context, dir string, progress func(string)) (apt, error) {
	if own, err := os.ReadFile("/etc/os-release"); err == nil && field(string(own), "VERSION_CODENAME=") == s.codename {
		return apt{}, nil
	}
	dir = filepath.Join(dir, s.name)
	lock, err := cache.Acquire(ctx, filepath.Join(dir, cache.LockName), func() { progress("waiting for another process that writes into " + dir) })
	if err != nil {
		return apt{}, err
	}
	defer lock.Close()
	a := apt{filepath.Join(dir, "apt.conf")}
	fetched := filepath.Join(dir, "fetched")
	info, err := os.Stat(fetched)
	if err == nil && time.Since(info.ModTime()) < listsAge {
		return a, nil
	}
	had := err == nil
	progress("fetching the package lists of " + s.name)
	if err = s.update(ctx, a, dir); err == nil {
		return a, cache.WriteFile(fetched, nil)
	}
	if had && ctx.Err() == nil {
		progress(err.Error() + "; the older lists are used")
		return a, nil
	}
	return apt{}, err
}

// keyring has the keys with which Debian signs its package lists.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// update fetches the lists. An index that fails is an error, unlike with apt-get's default.
func (s suite) update(ctx context.Context, a apt, dir string) error {
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("the package lists of %s: their keys are missing: %w; `apt-get install debian-archive-keyring` installs them", s.name, err)
	}
	sources, err := s.sources(ctx)
	if err != nil {
		return err
	}
	for _, private := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, private), 0o755); err != nil {
			return err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := errors.Join(cache.WriteFile(filepath.Join(dir, "sources.list"), []byte(sources)), cache.WriteFile(a.config, []byte(aptConfig(dir)))); err != nil {
		return err
	}
	if _, err := a.output(ctx, "", "apt-get", "update", "--error-on=any"); err != nil {
		return fmt.Errorf("fetching the package lists of %s: %w", s.name, err)
	}
	return nil
}

// sources are the lines of sources.list, with the mirrors that this machine's own package lists name.
func (s suite) sources(ctx context.Context) (string, error) {
	text, err := apt{}.output(ctx, "", "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	return s.sourcesFrom(text)
}

func (s suite) sourcesFrom(targets string) (string, error) {
	mirrors := map[string]string{} // by label; the first of each
	for line := range strings.Lines(targets) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "Debian" && mirrors[words[1]] == "" {
			mirrors[words[1]] = words[2]
		}
	}
	line := func(mirror, codename string) string {
		return fmt.Sprintf("deb [target=Packages arch=amd64 signed-by=%s] %s %s main\n", keyring, mirror, codename)
	}
	if mirrors["Debian"] == "" {
		return "", fmt.Errorf("the kernel of %s: the package lists of this machine name no mirror of Debian; give --guest-kernel a package, a directory or host", s.name)
	}
	text := line(mirrors["Debian"], s.codename)
	if mirror := mirrors["Debian-Security"]; mirror != "" && s.version != "" {
		text += line(mirror, s.codename+"-security")
	}
	return text, nil
}

// aptConfig makes apt use lists below dir. This machine's proxies and its other settings stay, but not its hooks.
func aptConfig(dir string) string {
	return fmt.Sprintf(`Dir::State::lists %q;
Dir::Cache %q;
Dir::Etc::sourcelist %q;
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`, filepath.Join(dir, "lists"), filepath.Join(dir, "cache"), filepath.Join(dir, "sources.list"))
}

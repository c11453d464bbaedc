package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
)

// DefaultKernel is the kernel that a guest boots where nothing else is asked for.
const DefaultKernel = "debian-12"

// HostKernel is the choice of this machine's own kernel.
const HostKernel = "host"

// KernelChoice is a kernel for a guest, as a user names it: a release of Debian, packages, a directory, or this machine's own. The zero
// value is DefaultKernel.
type KernelChoice struct {
	suite    suite
	packages []string // files
	dir      string
	host     bool
}

// KernelNames are the choices that are words.
func KernelNames() (names []string) {
	for _, s := range suites {
		names = append(names, s.Name)
	}
	return append(names, HostKernel)
}

// ParseKernelChoice reads a choice: a name, package files with commas between them, or a directory. The empty text is DefaultKernel.
func ParseKernelChoice(text string) (c KernelChoice, err error) {
	if text == "" {
		text = DefaultKernel
	}
	for _, s := range suites {
		if s.Name == text {
			return KernelChoice{suite: s}, nil
		}
	}
	switch {
	case text == HostKernel:
		return KernelChoice{host: true}, nil
	case strings.HasSuffix(text, ".deb"):
		c.packages = strings.Split(text, ",")
		for _, file := range c.packages {
			if err := input.Check(file, input.ProgramBytes); err != nil {
				return c, fmt.Errorf("the kernel package %s: %w", file, err)
			}
		}
		return c, nil
	}
	if info, err := os.Stat(text); err != nil || !info.IsDir() {
		return c, fmt.Errorf("unknown kernel %q; give %s, a kernel package (FILE.deb, more of them after commas), or a directory with vmlinuz and modules",
			text, strings.Join(KernelNames(), ", "))
	}
	return KernelChoice{dir: text}, nil
}

// Check refuses a directory without a kernel. It reads little, so that it can come before anything is built.
func (c KernelChoice) Check() error {
	if c.dir == "" {
		return nil
	}
	_, err := c.find()
	return err
}

// find finds the kernel in the directory.
func (c KernelChoice) find() (kernelFiles, error) {
	found, err := findKernel(c.dir)
	if err != nil {
		return found, fmt.Errorf("the kernel in %s: %w", c.dir, err)
	}
	return found, nil
}

// Default reports whether this is DefaultKernel.
func (c KernelChoice) Default() bool {
	name, isName := c.name()
	return isName && name == DefaultKernel
}

func (c KernelChoice) name() (string, bool) {
	switch {
	case c.host:
		return HostKernel, true
	case c.dir != "" || len(c.packages) > 0:
		return "", false
	case c.suite.Name == "":
		return DefaultKernel, true
	}
	return c.suite.Name, true
}

// String is the choice without the folders of its files, which do not affect a run.
func (c KernelChoice) String() string { return c.Text(filepath.Base) }

// Text is the choice with each of its files by path. A folder is absolute before that, because the name of . is that of the folder.
func (c KernelChoice) Text(path func(file string) string) string {
	if name, is := c.name(); is {
		return name
	}
	if c.dir != "" {
		dir, err := filepath.Abs(c.dir)
		if err != nil {
			dir = c.dir
		}
		return path(dir)
	}
	var files []string
	for _, file := range c.packages {
		files = append(files, path(file))
	}
	return strings.Join(files, ",")
}

// FetchKernel returns the kernel of a choice with plain modules. It needs no privileges. A kernel of Debian is the newest one that the
// package lists name; it is downloaded unless it is cached. Without package lists or network it is the newest cached one.
func FetchKernel(ctx context.Context, c KernelChoice, cacheDir string, progress func(string)) (k Kernel, err error) {
	switch {
	case c.host:
		k, err = fetchHost(ctx, cacheDir, progress)
	case c.dir != "":
		var found kernelFiles
		if found, err = c.find(); err == nil {
			k, err = fetchFiles(ctx, found, cacheDir, progress)
		}
	case len(c.packages) > 0:
		k, err = fetchPackages(ctx, c.packages, cacheDir, progress)
	case c.suite.Name == "":
		c, _ = ParseKernelChoice(DefaultKernel)
		fallthrough
	default:
		k, err = c.suite.fetch(ctx, cacheDir, progress)
	}
	if err == nil && !c.Default() {
		k.Source = c.String() + " " + k.version()
	}
	return k, err
}

// fromFiles begins the names of cached kernels that are no packages of the package lists. Their digest follows.
const fromFiles = "linux-image-files_"

// version is the version of a kernel's package, or the begin of the digest of its files.
func (k Kernel) version() string {
	if digest, is := strings.CutPrefix(k.Package, fromFiles); is {
		return "digest " + digest[:12]
	}
	_, version, _ := strings.Cut(k.Package, "_")
	return version
}

// fetchPackages returns the kernel in package files.
func fetchPackages(ctx context.Context, files []string, cacheDir string, progress func(string)) (Kernel, error) {
	all := sha256.New()
	for _, file := range files {
		sum := sha256.New()
		if err := input.Copy(ctx, sum, file, input.ProgramBytes); err != nil {
			return Kernel{}, fmt.Errorf("reading the kernel package %s: %w", file, err)
		}
		fmt.Fprintf(all, "%x\n", sum.Sum(nil))
	}
	id := fromFiles + hex.EncodeToString(all.Sum(nil))
	return fetchKernel(ctx, cacheDir, id, "unpacking "+strings.Join(files, ", "), progress, func(work string) (string, error) {
		return extract(ctx, work, files)
	})
}

// fetchFiles returns the kernel in a directory, as a copy that cannot change while a guest boots it.
func fetchFiles(ctx context.Context, found kernelFiles, cacheDir string, progress func(string)) (Kernel, error) {
	files, err := found.list()
	if err != nil {
		return Kernel{}, err
	}
	m := cache.Manifest{}
	for name, file := range files {
		if m[name], err = cache.Sha256(ctx, file); err != nil {
			return Kernel{}, fmt.Errorf("reading the kernel %s: %w", found.release, err)
		}
	}
	return fetchKernel(ctx, cacheDir, fromFiles+m.Digest(), "copying the kernel "+found.release, progress, func(work string) (string, error) {
		root := filepath.Join(work, "root")
		for name, file := range files {
			if err := copyChecked(ctx, file, filepath.Join(root, name), m[name]); err != nil {
				return "", err
			}
		}
		return root, nil
	})
}

// fetchHost returns this machine's own kernel: its files, or its packages where a user may not read them, as on Ubuntu.
func fetchHost(ctx context.Context, cacheDir string, progress func(string)) (Kernel, error) {
	release, err := kernelRelease()
	if err != nil {
		return Kernel{}, fmt.Errorf("reading the release of the kernel: %w", err)
	}
	return hostKernel(ctx, "/", release, cacheDir, progress)
}

func hostKernel(ctx context.Context, root, release, cacheDir string, progress func(string)) (Kernel, error) {
	found, err := installedKernel(root, release)
	if err == nil {
		return fetchFiles(ctx, found, cacheDir, progress)
	}
	k, packageErr := fetchNamed(ctx, "linux-image-"+release, cacheDir, progress)
	if packageErr == nil {
		return k, nil
	}
	return Kernel{}, fmt.Errorf("this machine's kernel %s: %w", release, errors.Join(err, packageErr))
}

package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/lab/debian"
)

// unpackPrefix begins the names of directories in which packages are unpacked.
const unpackPrefix = "unpack-"

// installKernel unpacks into a temporary directory and renames it, so that an interrupted download leaves no partial
// kernel. The caller has the lock.
func installKernel(ctx context.Context, dir string, unpack func(work string) (string, error)) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), unpackPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	root, err := unpack(work)
	if err == nil {
		err = plainKernel(ctx, root)
	}
	if err != nil {
		return err
	}
	if err := cache.Seal(ctx, root); err != nil {
		return err
	}
	return cache.ReplaceDir(root, dir)
}

// extract unpacks packages into one directory below work.
func extract(ctx context.Context, work string, packages []string) (root string, err error) {
	root = filepath.Join(work, "root")
	for _, file := range packages {
		if err := debian.Unpack(ctx, file, root); err != nil {
			return "", err
		}
	}
	return root, nil
}

// modulesDir is where a kernel's modules are in its root.
const modulesDir = "lib/modules"

// plainKernel brings the layouts of all distributions into that of Debian 12: the kernel is boot/vmlinuz-RELEASE, and its modules are plain
// files in lib/modules/RELEASE.
func plainKernel(ctx context.Context, root string) error {
	merged := filepath.Join(root, "usr", modulesDir) // of packages for a merged /usr
	if _, err := os.Stat(merged); err == nil {
		if err := mergeDir(merged, filepath.Join(root, modulesDir)); err != nil {
			return err
		}
	}
	beside, _ := filepath.Glob(filepath.Join(escaped(root), modulesDir, "*", "vmlinuz")) // of Debian from 14 on
	for _, image := range beside {
		if err := os.MkdirAll(filepath.Join(root, "boot"), 0o755); err != nil {
			return err
		}
		if err := os.Rename(image, filepath.Join(root, imagePath(filepath.Base(filepath.Dir(image))))); err != nil {
			return err
		}
	}
	if images, _ := filepath.Glob(filepath.Join(escaped(root), imagePath("*"))); len(images) != 1 {
		return fmt.Errorf("there are %d files boot/vmlinuz-RELEASE, want 1; give the package of the kernel and those of its modules", len(images))
	}
	return plainModules(ctx, root)
}

// imagePath is where a kernel is in its root.
func imagePath(release string) string { return filepath.Join("boot", "vmlinuz-"+release) }

// leftOut are directories of compressed modules that a guest never needs: of devices that it does not have, and of file systems.
// Decompressing them would take most of the time and of the space.
func leftOut(name string) bool {
	parts := strings.SplitN(name, "/", 5) // RELEASE/kernel/drivers/net/…
	if len(parts) < 4 || parts[1] != "kernel" {
		return false
	}
	return parts[2] == "fs" || parts[2] == "sound" || parts[2] == "drivers" && parts[3] != "net" && parts[3] != "virtio"
}

// plainModules decompresses the modules that a guest may need, and removes the others.
func plainModules(ctx context.Context, root string) error {
	modules := filepath.Join(root, modulesDir)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	err := filepath.WalkDir(modules, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // a kernel without modules
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		plain, open := decompression(path)
		if open == nil || !d.Type().IsRegular() {
			return nil
		}
		if name, err := filepath.Rel(modules, path); err == nil && leftOut(filepath.ToSlash(name)) {
			return os.Remove(path)
		}
		group.Go(func() error { return decompress(path, plain, open) })
		return nil
	})
	return errors.Join(err, group.Wait())
}

// mergeDir moves a directory to a place where one with other files may be.
func mergeDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, d := range entries {
		source, target := filepath.Join(from, d.Name()), filepath.Join(to, d.Name())
		if d.IsDir() {
			err = mergeDir(source, target)
		} else {
			err = os.Rename(source, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const moduleSuffix = ".ko"

// decompression returns the name of a module's plain file, and how to read it; nil for another file.
func decompression(path string) (plain string, open func(io.Reader) (io.ReadCloser, error)) {
	suffix := filepath.Ext(path)
	if plain = strings.TrimSuffix(path, suffix); !strings.HasSuffix(plain, moduleSuffix) {
		return "", nil
	}
	return plain, debian.Decompressor(suffix)
}

// maxModule bounds a module: a small file can hold any number of zeros.
const maxModule = 256 << 20

// decompress replaces a compressed module by a plain one.
func decompress(path, plain string, open func(io.Reader) (io.ReadCloser, error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("decompressing the module %s: %w", filepath.Base(path), err)
		}
	}()
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	content, err := open(in)
	if err != nil {
		return err
	}
	defer content.Close()
	out, err := os.Create(plain)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(content, maxModule+1))
	switch {
	case err == nil && n == 0:
		err = errors.New("it is empty")
	case err == nil && n > maxModule:
		err = fmt.Errorf("it has more than %d MB", maxModule>>20)
	}
	return errors.Join(err, out.Close(), os.Remove(path))
}

// kernelFiles are the files of a kernel that no package has.
type kernelFiles struct {
	release        string
	image, modules string // paths of vmlinuz and of lib/modules/RELEASE
}

// findKernel finds the only kernel in a directory.
func findKernel(dir string) (kernelFiles, error) {
	var images, modules []string
	for _, pattern := range []string{"vmlinuz", "vmlinuz-*", "boot/vmlinuz", "boot/vmlinuz-*", "lib/modules/*/vmlinuz", "usr/lib/modules/*/vmlinuz"} {
		found, _ := filepath.Glob(filepath.Join(escaped(dir), pattern))
		images = append(images, found...)
	}
	for _, pattern := range []string{"lib/modules/*/kernel", "usr/lib/modules/*/kernel"} {
		found, _ := filepath.Glob(filepath.Join(escaped(dir), pattern))
		modules = append(modules, found...)
	}
	images, modules = different(images), different(modules)
	if len(images) != 1 || len(modules) != 1 {
		return kernelFiles{}, fmt.Errorf("it has %d files vmlinuz or vmlinuz-RELEASE, in it, in boot or in lib/modules/RELEASE, and %d directories lib/modules/RELEASE/kernel; give one with one of each",
			len(images), len(modules))
	}
	found := kernelFiles{image: images[0], modules: filepath.Dir(modules[0])}
	found.release = filepath.Base(found.modules)
	if release, named := strings.CutPrefix(filepath.Base(found.image), "vmlinuz-"); named && release != found.release {
		return found, fmt.Errorf("its kernel has the release %s and its modules have %s", release, found.release)
	}
	return found, found.readable()
}

// escaped is a path as a pattern that matches only it.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// different are the paths without other paths of the same file: lib may be a link to usr/lib, and vmlinuz one to boot.
func different(paths []string) (kept []string) {
	var infos []fs.FileInfo
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || slices.ContainsFunc(infos, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
			continue
		}
		infos, kept = append(infos, info), append(kept, path)
	}
	return kept
}

// installedKernel finds a kernel by its release where distributions install it.
func installedKernel(root, release string) (kernelFiles, error) {
	found := kernelFiles{release, filepath.Join(root, imagePath(release)), filepath.Join(root, modulesDir, release)}
	return found, found.readable()
}

func (k kernelFiles) readable() error {
	f, err := input.Open(k.image, input.ProgramBytes)
	if err != nil {
		return err
	}
	_, err = os.ReadDir(filepath.Join(k.modules, "kernel"))
	return errors.Join(err, f.Close())
}

// list returns the files by their names in the root of a kernel.
func (k kernelFiles) list() (map[string]string, error) {
	target := filepath.Join(modulesDir, k.release)
	files := map[string]string{imagePath(k.release): k.image}
	if builtin := filepath.Join(k.modules, builtinFile); input.Check(builtin, input.TextBytes) == nil {
		files[filepath.Join(target, builtinFile)] = builtin
	}
	err := filepath.WalkDir(filepath.Join(k.modules, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(k.modules, path)
		files[filepath.Join(target, name)] = path
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the modules of the kernel %s: %w", k.release, err)
	}
	return files, nil
}

// copyChecked copies a file. One that has changed since its digest was computed is an error.
func copyChecked(ctx context.Context, from, to, want string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = errors.Join(input.Copy(ctx, io.MultiWriter(out, sum), from, input.ProgramBytes), out.Close())
	if found := hex.EncodeToString(sum.Sum(nil)); err == nil && found != want {
		err = fmt.Errorf("%s changed while it was copied; try again", from)
	}
	return err
}

package site

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/lab/build"
)

// platform is the platform of a hitless, its module as its build information has it, and the version of a release.
type platform struct {
	os, arch string
	module   module.Version
	release  string // empty for none
}

// mainPackage is the package of hitless below its module.
const mainPackage = "/cmd/hitless"

// guestProgramName is the file with the hitless of guests, beside the one of another platform.
const guestProgramName = "hitless-linux-" + build.Architecture

func thisPlatform() platform {
	p := platform{os: runtime.GOOS, arch: runtime.GOARCH, release: version.Release()}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.module = module.Version{Path: info.Main.Path, Version: info.Main.Version}
	}
	return p
}

// guests reports whether guests can execute the program itself.
func (p platform) guests() bool { return p.os == "linux" && p.arch == build.Architecture }

// released reports whether the module has a version, from which the go command can build.
func (p platform) released() bool { return semver.IsValid(p.module.Version) }

// GuestProgram tells whether there is a hitless for the guests of a VM, or whether it can be built. program is the running one.
func GuestProgram(program string) error { return thisPlatform().available(program) }

func (p platform) available(program string) error {
	if p.guests() || p.released() {
		return nil
	}
	_, err := p.beside(program)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the VM's processors are x86-64, and this program is for %s/%s: put %s beside it, which `make build` does", p.os, p.arch, guestProgramName)
	}
	return err
}

// beside is the program of guests in the folder of the running one. It must be of the same version.
func (p platform) beside(program string) (string, error) {
	file := filepath.Join(filepath.Dir(program), guestProgramName)
	if _, err := os.Stat(file); err != nil {
		return "", err
	}
	f, err := elf.Open(file)
	if err != nil {
		return "", fmt.Errorf("the program of guests %s is no program for Linux: %w", file, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		return "", fmt.Errorf("the program of guests %s is not for x86-64 but for %s", file, f.Machine)
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the program of guests %s: %w", file, err)
	}
	if found := (module.Version{Path: info.Main.Path, Version: info.Main.Version}); found != p.module {
		return "", fmt.Errorf("the program of guests %s is %s, and this program is %s; put the one of the same version there", file, found, p.module)
	}
	release, err := version.ReleaseOf(file)
	if err != nil {
		return "", err
	}
	if release != p.release {
		return "", fmt.Errorf("the program of guests %s is %s, and this program is %s; put the one of the same release there", file, cmp.Or(release, "no release"), cmp.Or(p.release, "no release"))
	}
	return file, nil
}

// OwnProgram is the running program as guests get it, without the version of a release. On other platforms than that of guests it is the
// program itself.
func OwnProgram(ctx context.Context, cacheDir string) (string, error) {
	program, err := os.Executable()
	if p := thisPlatform(); err != nil || !p.guests() || p.release == "" {
		return program, err
	}
	return version.Plain(ctx, program, ProgramDir(cacheDir))
}

// ProgramDir has programs of guests without the version of a release.
func ProgramDir(cacheDir string) string { return filepath.Join(cacheDir, "program") }

// guestProgram is the hitless that the guests of a VM execute: the running one, the one beside it, or one that is built from the same version of
// its module. Every error is a UsageError.
func (l *lab) guestProgram(ctx context.Context, p platform) (string, error) {
	if p.guests() {
		return l.Program, nil
	}
	if err := p.available(l.Program); err != nil {
		return "", UsageError{Reason: err}
	}
	file, err := p.beside(l.Program)
	if errors.Is(err, fs.ErrNotExist) {
		b := build.Builder{Cache: filepath.Join(l.Cache, "build"), Progress: Building(l.Progress)}
		file, err = b.Self(ctx, p.module, p.module.Path+mainPackage)
	} else if err == nil {
		file, err = version.Plain(ctx, file, ProgramDir(l.Cache))
	}
	if err != nil && ctx.Err() == nil {
		err = UsageError{Reason: err}
	}
	return file, err
}

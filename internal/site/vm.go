package site

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// VM is a QEMU guest with its own kernel and, by default, a virtual clock.
type VM struct {
	*lab
	boot vm.Boot
}

// Prepare builds the guest.
func (v *VM) Prepare(ctx context.Context) error {
	version, err := QEMUVersion(ctx)
	if err != nil {
		return err
	}
	if err := v.prepare(); err != nil {
		return err
	}
	packed, err := v.Pack(ctx)
	if err != nil {
		return err
	}
	data, err := v.plan.Marshal()
	if err != nil {
		return err
	}
	v.clock = "virtual"
	if v.Clock == "real" {
		v.clock = "real"
	}
	base, err := v.plan.Base().Marshal()
	if err != nil {
		return err
	}
	first, files := packed.Boot, packed.Files
	v.kernel, v.kernelPackage = record.Kernel{Kind: "vm", Release: packed.Kernel.Release, Source: packed.Kernel.Source, QEMU: qemuVersion(version)}, packed.Kernel.Package
	v.packed = []string{first.Sha256, files.Sha256}
	v.boot = vm.Boot{Kernel: packed.Kernel, Initrd: first.File, Files: files.File, Base: base, Plan: data, StopAt: v.StopAt, MemoryMB: v.memoryMB(),
		MemoryGroups: v.plan.Scenario == bench.Scenario, RealTime: v.clock == "real", Deadline: v.Deadline}
	size, err := v.boot.FilesSize()
	if err != nil {
		return err
	}
	booted := bootInputs(v.boot, first, size, version)
	machine := append(booted, files.Sha256)
	if !v.Cold {
		v.boot.Snapshots = filepath.Join(v.Cache, "snapshots")
		v.boot.BootKey, v.boot.Key = snapshotKey(booted...), snapshotKey(append(machine, string(base))...)
	}
	v.boot.Line = func(line string, region []byte) {
		if e := v.guestLine(line); e.Kind == progress.Checkpoint {
			v.checkpoint(region)
		}
	}
	v.inputs = inputsDigest(append(machine, string(data), v.clock)...)
	return nil
}

// PackedGuest is what a guest boots, in the cache.
type PackedGuest struct {
	Kernel      vm.Kernel
	Boot, Files vm.Packed // the files that boot, and the others
	Tools       []string  // packages of the guest's tools, as NAME_VERSION
}

// Pack packs the kernel and the files of the guest. It needs no QEMU and boots nothing.
func (v *VM) Pack(ctx context.Context) (packed PackedGuest, err error) {
	if v.Program, err = v.guestProgram(ctx, thisPlatform()); err != nil {
		return packed, err
	}
	img, err := v.image(ctx)
	if err != nil {
		return packed, err
	}
	if packed.Kernel, err = v.guestKernel(ctx); err != nil {
		return packed, err
	}
	initrd, missing, err := vm.BootImage(img, packed.Kernel, guest.Program, slices.Concat(vm.Modules, v.plan.Modules())...)
	if err != nil {
		return packed, UsageError{Reason: err}
	}
	v.notes = append(v.notes, "modules that this kernel lacks or has built in: "+strings.Join(missing, " "))
	dir := filepath.Join(v.Cache, "initramfs")
	if packed.Boot, err = initrd.Pack(ctx, dir, v.message); err != nil {
		return packed, err
	}
	packed.Files, err = img.Pack(ctx, dir, v.message)
	packed.Tools = v.toolPackages()
	return packed, err
}

// bootInputs are the inputs of a guest up to its first pause: the bytes that boot, and the machine that runs them. size is that of the
// device with its files.
func bootInputs(b vm.Boot, first vm.Packed, size int64, qemu string) []string {
	return []string{b.Kernel.Sha256, first.Sha256, qemu, fmt.Sprint(b.MemoryMB, b.MemoryGroups, size)}
}

// snapshotKey is the key of a snapshot of a guest with these inputs.
func snapshotKey(inputs ...string) string { return inputsDigest(inputs...)[:24] }

// World boots the guest and waits for its end. At each checkpoint the record so far is stored.
func (v *VM) World(ctx context.Context) (err error) {
	if err := v.clear(); err != nil {
		return err
	}
	v.message(fmt.Sprintf("booting %s with %d MB", v.kernel.Named(), v.boot.MemoryMB))
	if v.compiler != nil && v.clock == "virtual" {
		v.boot.Call = func(request []byte) ([]byte, error) { return v.compiler.Answer(ctx, request) }
	}
	v.outcome, err = vm.Run(ctx, v.boot)
	if v.boot.Call != nil {
		made, kept := v.compiler.Counts()
		v.notes = append(v.notes, fmt.Sprintf("BPF programs: %d compiled, %d from the cache", made, kept))
	}
	return err
}

// OldestQEMU is the oldest version of QEMU with which hitless is tested: that of Debian 12.
const OldestQEMU = "7.2"

var qemuNumber = regexp.MustCompile(`version (\d+\.\d+)`)

// qemuVersion is the version in the line that QEMU prints.
func qemuVersion(line string) string {
	_, version, _ := strings.Cut(line, "version ")
	return cmp.Or(version, line)
}

// QEMUVersion is the line in which QEMU tells its version. The UsageError says that QEMU is missing or too old.
func QEMUVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, vm.QEMU, "--version").Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("asking %s for its version: %w", vm.QEMU, context.Cause(ctx))
	}
	if err != nil {
		return "", Usagef("asking %s for its version: %w; `apt-get install qemu-system-x86` installs it", vm.QEMU, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	number := qemuNumber.FindStringSubmatch(first)
	if number != nil && semver.Compare("v"+number[1], "v"+OldestQEMU) < 0 {
		return "", Usagef("%s is version %s, and the lab needs %s or later, as Debian 12 has it; install a newer one, or use --kernel host", vm.QEMU, number[1], OldestQEMU)
	}
	return first, nil
}

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
	img, data, err := v.prepare(ctx)
	if err != nil {
		return err
	}
	v.clock = "virtual"
	if v.Clock == "real" {
		v.clock = "real"
	}
	kernel, err := v.guestKernel(ctx)
	if err != nil {
		return err
	}
	v.kernel, v.kernelPackage = record.Kernel{Kind: "vm", Release: kernel.Release, Source: kernel.Source, QEMU: qemuVersion(version)}, kernel.Package
	initrd, missing, err := vm.BootImage(img, kernel, guest.Program, slices.Concat(vm.Modules, v.plan.Modules())...)
	if err != nil {
		return UsageError{Reason: err}
	}
	v.notes = append(v.notes, "modules that this kernel lacks or has built in: "+strings.Join(missing, " "))
	first, err := v.pack(ctx, initrd)
	if err != nil {
		return err
	}
	files, err := v.pack(ctx, img)
	if err != nil {
		return err
	}
	base, err := v.plan.Base().Marshal()
	if err != nil {
		return err
	}
	v.boot = vm.Boot{Kernel: kernel, Initrd: first.File, Files: files.File, Base: base, Plan: data, StopAt: v.StopAt, MemoryMB: v.memoryMB(),
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

// pack packs an image into the cache.
func (v *VM) pack(ctx context.Context, img *vm.Image) (vm.Packed, error) {
	return img.Pack(ctx, filepath.Join(v.Cache, "initramfs"), v.message)
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
	v.outcome, err = vm.Run(ctx, v.boot)
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

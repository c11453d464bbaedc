package site

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// The content of kernel and first files is part of the inputs and of a snapshot's key, whatever their names are.
func TestInputsAreTheBytesThatBoot(t *testing.T) {
	kernel, packed := vm.Kernel{Package: "linux_1", Image: "vmlinuz", Sha256: "aa"}, vm.Packed{File: "lab.cpio", Sha256: "bb"}
	digest := func(k vm.Kernel, p vm.Packed, mb int, qemu string) string {
		return snapshotKey(bootInputs(vm.Boot{Kernel: k, MemoryMB: mb}, p, 512<<20, qemu)...)
	}
	whole, renamed := digest(kernel, packed, 2048, "QEMU 7.2"), kernel
	if renamed.Image = "elsewhere"; digest(renamed, packed, 2048, "QEMU 7.2") != whole {
		t.Error("the path of the kernel is an input")
	}
	otherKernel, otherPacked := kernel, packed
	otherKernel.Sha256, otherPacked.Sha256 = "ab", "bc"
	for name, got := range map[string]string{"kernel": digest(otherKernel, packed, 2048, "QEMU 7.2"), "first files": digest(kernel, otherPacked, 2048, "QEMU 7.2"),
		"memory": digest(kernel, packed, 4096, "QEMU 7.2"), "QEMU": digest(kernel, packed, 2048, "QEMU 10.0")} {
		if got == whole {
			t.Errorf("another %s gives the same inputs", name)
		}
	}
}

// The user's own programs (--binaries) are part of the packed files by their content.
func TestBinariesAreInputs(t *testing.T) {
	dir := t.TempDir()
	digest := func(text string) string {
		t.Helper()
		for _, target := range build.ControlPlane {
			script := "#!/bin/sh\necho " + target.Version + "\n" + text
			if err := os.WriteFile(filepath.Join(dir, target.String()), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		spec, err := subject.Parse("bundled")
		if err != nil {
			t.Fatal(err)
		}
		l := &lab{LabOptions: LabOptions{Binaries: dir, Cache: t.TempDir()}, plan: guest.Plan{Scenario: "quiet", ControlPlane: "kube"}, spec: spec}
		img := vm.NewImage()
		if err := l.addPrograms(t.Context(), img); err != nil {
			t.Fatal(err)
		}
		packed, err := img.Pack(t.Context(), t.TempDir(), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return packed.Sha256
	}
	one, same, other := digest("# one\n"), digest("# one\n"), digest("# two\n")
	if one != same || one == other {
		t.Errorf("the same programs give %s and %s, others %s", one, same, other)
	}
}

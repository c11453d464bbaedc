package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// An unpacked file has the content and the mode of the packed one, and an unpacked link its target. Existing directories stay.
func TestPackedFilesAreUnpacked(t *testing.T) {
	img, _ := smallImage(t)
	img.Text("/etc/protocols", "tcp 6 TCP\n")
	img.Text("/empty", "")
	img.Link("/usr/sbin/iptables", "xtables")
	packed, err := img.Pack(t.Context(), t.TempDir(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	device, err := newDeviceFile(filepath.Join(t.TempDir(), "files"), filesSize(0))
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	boot := Boot{Files: packed.File}
	if err := boot.putFiles(device); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(packed.File)
	if err != nil {
		t.Fatal(err)
	}
	given := make([]byte, len(want))
	if _, err := device.ReadAt(given, filesOffset); err != nil || !bytes.Equal(given, want) {
		t.Errorf("the device has other bytes than the image (%v)", err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil { // there already, as in a guest that has booted
		t.Fatal(err)
	}
	if err := unpackImage(root, given); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"usr/bin/program": "a program", "etc/protocols": "tcp 6 TCP\n", "empty": ""} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s has %q, want %q (%v)", name, got, want, err)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "usr/bin/program")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the program has the mode %v (%v)", info.Mode(), err)
	}
	if target, err := os.Readlink(filepath.Join(root, "usr/sbin/iptables")); err != nil || target != "xtables" {
		t.Errorf("the link leads to %q (%v)", target, err)
	}
	if err := unpackImage(root, given); err == nil {
		t.Error("a file that is there already was replaced without an error")
	}
	if err := unpackImage(t.TempDir(), given[:len(given)/2]); err == nil {
		t.Error("half of an image was unpacked without an error")
	}
}

// The program boots, and every other file comes later: none is in both images, or in neither.
func TestTheProgramBootsAlone(t *testing.T) {
	img, _ := smallImage(t)
	img.Text("/etc/protocols", "tcp 6 TCP\n")
	boot, _, err := BootImage(img, Kernel{}, "/usr/bin/program")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/usr/bin/program", "/etc/protocols"} {
		if program := name == "/usr/bin/program"; boot.Has(name) != program || img.Has(name) == program {
			t.Errorf("%s: in the image that boots: %t; in the other: %t", name, boot.Has(name), img.Has(name))
		}
	}
	if !boot.Has("/init") || !boot.Has(ModuleList) {
		t.Error("the image that boots has no first program, or no list of modules")
	}
}

// The device of the guest's files holds them, and its size is a power of two, as PCI asks for.
func TestTheDeviceHoldsTheFiles(t *testing.T) {
	for _, packed := range []int64{0, 1, minFilesSize - filesOffset, minFilesSize - filesOffset + 1, 3 << 30} {
		size := filesSize(packed)
		if size < packed+filesOffset || size&(size-1) != 0 || size > minFilesSize && size/2 >= packed+filesOffset {
			t.Errorf("%d bytes are in a device of %d", packed, size)
		}
	}
}

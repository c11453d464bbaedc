//go:build unix

package vm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeApt puts programs into the path that have the packages of a layout, with the names that Ubuntu gives them.
func fakeApt(t *testing.T, l layout) {
	t.Helper()
	dir, files := t.TempDir(), l.files(t)
	names := []string{"linux-image-" + l.release, "linux-modules-" + l.release, "linux-modules-extra-" + l.release}
	for i, name := range names {
		text := "Package: " + name + "\nVersion: 6.8.0-31.31\n"
		if i == 0 {
			text += "Depends: kmod, linux-base (>= 4.5), linux-modules-" + l.release + "\n"
		}
		content, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		writeTree(t, dir, map[string]string{"lists/" + name: text, "packages/" + name: string(content)})
	}
	for program, script := range map[string]string{
		"apt-cache": `for name; do :; done; cat "` + dir + `/lists/$name"`,
		"apt-get":   `shift; for name; do cp "` + dir + `/packages/$name" "$name.deb"; done`,
	} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Where a user may not read this machine's kernel, as on Ubuntu, its packages give it. The error of another kernel names both ways.
func TestHostKernelOfPackages(t *testing.T) {
	l := layouts(t)["Ubuntu"]
	fakeApt(t, l)
	root, cache := t.TempDir(), t.TempDir()
	k, err := hostKernel(t.Context(), root, l.release, cache, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	checkKernel(t, k, l.release)
	if want := "linux-image-6.8.0-31-generic_6.8.0-31.31"; k.Package != want {
		t.Errorf("the package is %s, want %s", k.Package, want)
	}
	if _, err := hostKernel(t.Context(), root, "6.18.44-other", cache, func(string) {}); err == nil ||
		!strings.Contains(err.Error(), "vmlinuz-6.18.44-other") || !strings.Contains(err.Error(), "linux-image-6.18.44-other") {
		t.Errorf("another kernel: %v", err)
	}
}

// The parts of a kernel are the packages of its release.
func TestKernelParts(t *testing.T) {
	const sid = "Package: linux-image-7.2.13+deb14-cloud-amd64\nDepends: dracut | initramfs-tools (>= 0.120) | linux-initramfs-tool, " +
		"linux-base-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-modules-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)\n"
	want := []string{"linux-base-7.2.13+deb14-cloud-amd64", "linux-binary-7.2.13+deb14-cloud-amd64", "linux-modules-7.2.13+deb14-cloud-amd64"}
	if got := dependencies(sid, "7.2.13+deb14-cloud-amd64"); !slices.Equal(got, want) {
		t.Errorf("sid: %q", got)
	}
	if got := dependencies("Depends: kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool\n", "6.1.0-56-cloud-amd64"); len(got) != 0 {
		t.Errorf("Debian 12: %q", got)
	}
}

// Without package lists each release of Debian uses its own cached kernels only.
func TestCachedKernelsOfReleases(t *testing.T) {
	for id, want := range map[string]string{
		"linux-image-5.10.0-46-cloud-amd64_5.10.262-1":         "debian-11",
		"linux-image-6.1.0-56-cloud-amd64_6.1.192-2":           "debian-12",
		"linux-image-6.12.118+deb13-cloud-amd64_6.12.118-1":    "debian-13",
		"linux-image-7.2.13+deb14-cloud-amd64_7.2.13-1":        "debian-sid",
		fromFiles + "0123456789abcdef0123456789abcdef01234567": "",
	} {
		var got []string
		for _, s := range suites {
			if s.has(id) {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is of %q, want %q", id, got, want)
		}
	}
}

// Choices are names, packages and directories. Their text has no folders, and the absolute one repeats them.
func TestKernelChoices(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a.deb": "", "b.deb": "", "kernel/vmlinuz": ""})
	t.Chdir(dir)
	for text, want := range map[string][2]string{
		"": {"debian-12", "debian-12"}, "debian-12": {"debian-12", "debian-12"}, "debian-sid": {"debian-sid", "debian-sid"}, "host": {"host", "host"},
		"./a.deb,b.deb": {"a.deb,b.deb", dir + "/a.deb," + dir + "/b.deb"}, "kernel": {"kernel", dir + "/kernel"}, "kernel/..": {filepath.Base(dir), dir},
	} {
		c, err := ParseKernelChoice(text)
		absolute := c.Text(func(file string) string { return filepath.Join(dir, strings.TrimPrefix(file, dir)) })
		if err != nil || c.String() != want[0] || absolute != want[1] || c.Default() != (want[0] == DefaultKernel) {
			t.Errorf("%q is %s and %s, default %t, %v", text, c, absolute, c.Default(), err)
		}
	}
	if (KernelChoice{}).String() != DefaultKernel || !(KernelChoice{}).Default() {
		t.Error("the zero value is not the default")
	}
	for _, wrong := range []string{"debian-14", "missing.deb", "a.deb,missing.deb", "kernel/vmlinuz", "a.deb,kernel"} {
		if c, err := ParseKernelChoice(wrong); err == nil {
			t.Errorf("%q is %+v", wrong, c)
		}
	}
}

// A feature may need modules or a release.
func TestFeatures(t *testing.T) {
	for release, lacks := range map[string]bool{"5.10.0-46-cloud-amd64": true, "5.13.0": false, "5.13": false, "6.1.0-1-amd64": false, "4.19.2": true, "custom": false} {
		lines, err := Kernel{Release: release}.Lacks([]Feature{{Name: "nftables", Since: "5.13"}})
		if err != nil || (len(lines) == 1) != lacks {
			t.Errorf("%s lacks %q, %v", release, lines, err)
		}
	}
	lines, err := Kernel{Release: "6.1"}.Lacks([]Feature{{Name: "IPVS", Modules: []string{"ip_vs", "ip_vs_rr"}}})
	if err != nil || !slices.Equal(lines, []string{"IPVS: modules ip_vs, ip_vs_rr"}) {
		t.Errorf("it lacks %q, %v", lines, err)
	}
}

//go:build unix

package vm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/testfiles"
)

// module is an ELF file with the section .modinfo that names the modules it depends on.
func module(t *testing.T, depends string) string {
	t.Helper()
	const names = "\x00.modinfo\x00.shstrtab\x00"
	info := "license=GPL\x00depends=" + depends + "\x00" + strings.Repeat("x", 4096)
	const header, entry = 64, 64
	var b bytes.Buffer
	write := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	sections := uint64(header + len(info) + len(names))
	write(struct {
		Type, Machine                        uint16
		Version                              uint32
		Entry, Phoff, Shoff                  uint64
		Flags                                uint32
		Ehsize, Phsize, Phnum, Shsize, Shnum uint16
		Shstrndx                             uint16
	}{1, 62, 1, 0, 0, sections, 0, header, 0, 0, entry, 3, 2})
	b.WriteString(info + names)
	section := func(name, kind uint32, offset, size int) {
		write([2]uint32{name, kind})
		write([4]uint64{0, 0, uint64(offset), uint64(size)})
		write([2]uint32{})
		write([2]uint64{1, 0})
	}
	section(0, 0, 0, 0)
	section(1, 1, header, len(info))
	section(10, 3, header+len(info), len(names))
	return b.String()
}

// writeTree writes files below a directory.
func writeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// packed makes a package with files and returns its path.
func packed(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+"_1.0-1_amd64.deb")
	if err := os.WriteFile(file, []byte(testfiles.Deb(t, ".xz", files)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// layout is how a distribution packs its kernels.
type layout struct {
	release  string
	packages []map[string]string
}

func (l layout) files(t *testing.T) (files []string) {
	t.Helper()
	for i, content := range l.packages {
		files = append(files, packed(t, fmt.Sprintf("linux-part%d-%s", i, l.release), content))
	}
	return files
}

// layouts have the kernel, the modules veth, ip_vs and nf_conntrack, which ip_vs depends on, and bridge built in.
func layouts(t *testing.T) map[string]layout {
	t.Helper()
	const builtin = "kernel/net/bridge/bridge.ko\n"
	conntrack, ipvs := module(t, ""), module(t, "nf_conntrack")
	modules := func(dir, suffix string) map[string]string {
		text := func(plain string) string { return testfiles.Compressed(t, suffix, plain) }
		return map[string]string{dir + "modules.builtin": builtin, dir + "kernel/drivers/net/veth.ko" + suffix: text(module(t, "")),
			dir + "kernel/net/netfilter/nf_conntrack.ko" + suffix: text(conntrack), dir + "kernel/net/netfilter/ipvs/ip_vs.ko" + suffix: text(ipvs)}
	}
	with := func(files map[string]string, name string) map[string]string {
		files[name] = "a compressed kernel"
		return files
	}
	ubuntu := modules("lib/modules/6.8.0-31-generic/", ".zst")
	extra := map[string]string{}
	for name, text := range ubuntu {
		if strings.Contains(name, "ip_vs") {
			extra[name] = text
			delete(ubuntu, name)
		}
	}
	return map[string]layout{
		"Debian 12": {"6.1.0", []map[string]string{with(modules("lib/modules/6.1.0/", ""), "boot/vmlinuz-6.1.0")}},
		"Debian 13": {"6.12.1+deb13", []map[string]string{with(modules("usr/lib/modules/6.12.1+deb13/", ".xz"), "boot/vmlinuz-6.12.1+deb13")}},
		"Debian 14": {"7.2", []map[string]string{{}, {"usr/lib/modules/7.2/vmlinuz": "a compressed kernel"}, modules("usr/lib/modules/7.2/", ".xz")}},
		"Ubuntu":    {"6.8.0-31-generic", []map[string]string{{"boot/vmlinuz-6.8.0-31-generic": "a compressed kernel"}, ubuntu, extra}},
		"gzip":      {"5.4.0", []map[string]string{with(modules("lib/modules/5.4.0/", ".gz"), "boot/vmlinuz-5.4.0")}},
	}
}

// checkKernel checks a kernel of layouts.
func checkKernel(t *testing.T, k Kernel, release string) {
	t.Helper()
	if k.Release != release || filepath.Base(k.Image) != "vmlinuz-"+release {
		t.Errorf("release %s, image %s", k.Release, k.Image)
	}
	files, err := k.ModuleFiles("ip_vs", "veth")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	if !slices.Equal(names, []string{"nf_conntrack.ko", "ip_vs.ko", "veth.ko"}) {
		t.Errorf("the modules are %q", names)
	}
	if text, err := os.ReadFile(files[1]); err != nil || string(text) != module(t, "nf_conntrack") {
		t.Errorf("ip_vs is not plain: %v", err)
	}
	lines, err := k.Lacks([]Feature{{Name: "IPVS", Modules: []string{"ip_vs"}}, {Name: "bridges", Modules: []string{"bridge"}}, {Name: "SCTP", Modules: []string{"sctp"}}})
	if err != nil || !slices.Equal(lines, []string{"SCTP: module sctp"}) {
		t.Errorf("it lacks %q, %v", lines, err)
	}
}

// Kernel packages of all layouts give the same kernel, once.
func TestKernelPackages(t *testing.T) {
	for name, l := range layouts(t) {
		t.Run(name, func(t *testing.T) {
			choice, err := ParseKernelChoice(strings.Join(l.files(t), ","))
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			cache := t.TempDir()
			for range 2 {
				k, err := FetchKernel(t.Context(), choice, cache, func(s string) { lines = append(lines, s) })
				if err != nil {
					t.Fatal(err)
				}
				checkKernel(t, k, l.release)
				if !strings.HasPrefix(k.Source, choice.String()+" digest ") || strings.Contains(k.Source, "/") {
					t.Errorf("its source is %q", k.Source)
				}
			}
			if len(lines) != 1 {
				t.Errorf("the reports are %q", lines)
			}
		})
	}
}

// A directory, and this machine's own kernel, give the same kernel as packages. A changed file makes it another one.
func TestKernelDirectory(t *testing.T) {
	for name, l := range layouts(t) {
		t.Run(name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			for _, content := range l.packages {
				writeTree(t, dir, content)
			}
			choice, err := ParseKernelChoice(dir)
			if err != nil {
				t.Fatal(err)
			}
			fetch := func() Kernel {
				t.Helper()
				k, err := FetchKernel(t.Context(), choice, cache, func(string) {})
				if err != nil {
					t.Fatal(err)
				}
				return k
			}
			k := fetch()
			checkKernel(t, k, l.release)
			if image, _ := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*")); len(image) == 1 && strings.HasPrefix(name, "Ubuntu") {
				host, err := hostKernel(t.Context(), dir, l.release, cache, func(string) {})
				if err != nil || host.Package != k.Package {
					t.Errorf("as this machine's kernel: %+v, %v", host, err)
				}
			}
			images, _ := filepath.Glob(filepath.Join(dir, "boot/*"))
			beside, _ := filepath.Glob(filepath.Join(dir, "usr/lib/modules/*/vmlinuz"))
			if err := os.WriteFile(append(images, beside...)[0], []byte("another kernel"), 0o644); err != nil {
				t.Fatal(err)
			}
			if other := fetch(); other.Sha256 == k.Sha256 || other.Package == k.Package || other.Source == k.Source {
				t.Errorf("the changed kernel is %+v, as %+v before", other, k)
			}
		})
	}
}

// Directories that do not have exactly one kernel with its modules are refused.
func TestWrongKernelDirectories(t *testing.T) {
	pipe := func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "boot/vmlinuz-1"), 0o600) }
	for name, wrong := range map[string]struct {
		files map[string]string
		make  func(dir string) error
		want  string
	}{
		"empty":        {nil, nil, "0 files"},
		"no modules":   {map[string]string{"vmlinuz": ""}, nil, "0 directories"},
		"two kernels":  {map[string]string{"vmlinuz-1": "", "boot/vmlinuz-2": "", "lib/modules/1/kernel/a.ko": ""}, nil, "2 files"},
		"two releases": {map[string]string{"vmlinuz": "", "lib/modules/1/kernel/a.ko": "", "lib/modules/2/kernel/a.ko": ""}, nil, "2 directories"},
		"another one":  {map[string]string{"vmlinuz-1": "", "lib/modules/2/kernel/a.ko": ""}, nil, "release 1"},
		"a pipe":       {map[string]string{"boot/x": "", "lib/modules/1/kernel/a.ko": ""}, pipe, "regular file"},
	} {
		dir := t.TempDir()
		writeTree(t, dir, wrong.files)
		if wrong.make != nil {
			if err := wrong.make(dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := FetchKernel(t.Context(), KernelChoice{dir: dir}, t.TempDir(), func(string) {}); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir() // of a system where lib is a link and vmlinuz leads to boot
	writeTree(t, dir, map[string]string{"boot/vmlinuz-1": "a kernel", "usr/lib/modules/1/kernel/a.ko": module(t, "")})
	for link, target := range map[string]string{"lib": "usr/lib", "vmlinuz": "boot/vmlinuz-1"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if k, err := FetchKernel(t.Context(), KernelChoice{dir: dir}, t.TempDir(), func(string) {}); err != nil || k.Release != "1" {
		t.Errorf("with links: %+v, %v", k, err)
	}
}

// Damaged packages and damaged modules in them are refused by name, and leave nothing in the cache.
func TestDamagedKernelPackages(t *testing.T) {
	whole := packed(t, "linux-image-6.1.0", map[string]string{"boot/vmlinuz-6.1.0": "a compressed kernel"})
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	good, err := FetchKernel(t.Context(), KernelChoice{packages: []string{whole}}, t.TempDir(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "damaged.deb")
	for name, bad := range map[string]string{"truncated": string(text[:len(text)/2]), "empty": "", "no archive": "a kernel"} {
		writeTree(t, filepath.Dir(file), map[string]string{"damaged.deb": bad})
		refuseKernel(t, name, file, "damaged.deb")
	}
	refused := 0
	for i := 0; i < len(text); i += 31 { // the part with the description is not read
		bad := slices.Clone(text)
		bad[i] ^= 0xff
		writeTree(t, filepath.Dir(file), map[string]string{"damaged.deb": string(bad)})
		k, err := FetchKernel(t.Context(), KernelChoice{packages: []string{file}}, t.TempDir(), func(string) {})
		if err == nil && k.Sha256 != good.Sha256 {
			t.Errorf("with another byte %d it is another kernel", i)
		}
		if err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no changed byte is refused")
	}
	for suffix := range testfiles.Compressions {
		whole := testfiles.Compressed(t, suffix, module(t, ""))
		for name, bad := range map[string]string{"truncated": whole[:len(whole)/2], "empty": "", "no archive": "a module", "flipped": flipped(whole)} {
			file := packed(t, "linux-image-6.1.0", map[string]string{"boot/vmlinuz-6.1.0": "a kernel", "lib/modules/6.1.0/kernel/net/bad.ko" + suffix: bad})
			refuseKernel(t, name+suffix, file, "bad.ko"+suffix)
		}
	}
	refuseKernel(t, "no kernel", packed(t, "linux-modules-6.1.0", map[string]string{"lib/modules/6.1.0/kernel/net/veth.ko": module(t, "")}), "0 files boot/vmlinuz")
}

// flipped is a text with one changed byte in its middle.
func flipped(text string) string {
	b := []byte(text)
	b[len(b)/2] ^= 0xff
	return string(b)
}

func refuseKernel(t *testing.T, name, file, want string) {
	t.Helper()
	cache := t.TempDir()
	if _, err := FetchKernel(t.Context(), KernelChoice{packages: []string{file}}, cache, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v", name, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "[^.]*")); len(left) != 0 {
		t.Errorf("%s: left are %q", name, left)
	}
}

// Compressed modules that no guest needs are left out.
func TestModulesOfDevicesAreLeftOut(t *testing.T) {
	text := testfiles.Compressed(t, ".xz", module(t, ""))
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"vmlinuz": "a kernel", "lib/modules/1/kernel/drivers/net/veth.ko.xz": text,
		"lib/modules/1/kernel/drivers/gpu/drm.ko.xz": text, "lib/modules/1/kernel/fs/ext4/ext4.ko.xz": text})
	k, err := FetchKernel(t.Context(), KernelChoice{dir: dir}, t.TempDir(), func(string) {})
	if names := slices.Collect(maps.Keys(k.modules())); err != nil || !slices.Equal(names, []string{"veth"}) {
		t.Errorf("the modules are %q, %v", names, err)
	}
}

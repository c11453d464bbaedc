package run

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
)

// wholeMachine has everything.
func wholeMachine(t *testing.T) doctor {
	t.Helper()
	return doctor{find: func(p string) string { return "/usr/bin/" + p }, qemu: func(context.Context) (string, error) { return "QEMU emulator version 8.2.0", nil },
		tryQEMU: func(context.Context) error { return nil },
		goEnv: func(context.Context) (build.Go, error) {
			return build.Go{Version: "go1.26.8", Cache: t.TempDir(), Modules: t.TempDir()}, nil
		},
		kernel: func(context.Context, string) (string, error) { return "linux-image-6.1_6.1.1", nil }, memoryMB: func() int { return 64 << 10 },
		tools:  func(context.Context, string) (tools.Set, bool) { return tools.Set{}, true },
		places: []site.Place{{Dir: t.TempDir(), Change: "--out"}}, cpus: func() (int, error) { return 2, nil }, priority: func() error { return nil }, root: true,
		host: func(context.Context, string) error { return nil }, cache: filepath.Join(t.TempDir(), "cache")}
}

// program puts a stand-in into a folder that is first in PATH.
func program(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The doctor reports each missing part of a machine in one line, which says what to do. The doctor changes nothing.
func TestDoctorNamesWhatIsMissing(t *testing.T) {
	refused := errors.New("creating namespaces was refused; in a container use the privileged mode")
	for name, c := range map[string]struct {
		change func(t *testing.T, d *doctor)
		at     string // name of the finding
		state  State
		say    []string
	}{
		"nothing": {func(*testing.T, *doctor) {}, "virtual machine", Ready, nil},
		"QEMU": {func(_ *testing.T, d *doctor) {
			d.find = func(p string) string { return strings.TrimPrefix(p, vm.QEMU) }
		}, "virtual machine", Missing, []string{"qemu-system-x86", "--install"}},
		"a QEMU that is old": {func(t *testing.T, d *doctor) {
			program(t, vm.QEMU, "echo 'QEMU emulator version 6.2.0 (Debian 1:6.2)'")
			d.qemu = site.QEMUVersion
		}, "virtual machine", Missing, []string{"6.2", site.OldestQEMU, "--kernel host"}},
		"nothing, with a QEMU that is new": {func(t *testing.T, d *doctor) {
			program(t, vm.QEMU, "echo 'QEMU emulator version 10.0.2 (Debian 1:10.0.2)'")
			d.qemu = site.QEMUVersion
		}, "virtual machine", Ready, []string{"10.0.2"}},
		"a QEMU that has all devices": {func(t *testing.T, d *doctor) {
			program(t, vm.QEMU, `case "$*" in *ivshmem-plain*) echo "qemu-system-x86_64: 'ivshmem-plain' is not a valid device model name" >&2; exit 1;; esac`)
			d.tryQEMU = vm.TryQEMU
		}, "virtual machine", Missing, []string{"ivshmem-plain", "8.2.0", "--kernel host", "qemu-system-x86"}},
		"a QEMU that runs": {func(t *testing.T, d *doctor) {
			program(t, vm.QEMU, "exit 1")
			d.qemu = site.QEMUVersion
		}, "virtual machine", Missing, []string{"qemu-system-x86"}},
		"a program for guests": {func(_ *testing.T, d *doctor) { d.guest = errors.New("put it beside") }, "guest program", Missing, []string{"put it beside"}},
		"guest tools": {func(_ *testing.T, d *doctor) {
			d.tools = func(context.Context, string) (tools.Set, bool) { return tools.Set{}, false }
		}, "guest tools", Note, []string{"first run", "hitless build guest-tools"}},
		"tools for the host's kernel": {func(_ *testing.T, d *doctor) {
			d.host = func(ctx context.Context, mode string) error {
				if mode == "iptables" {
					_, err := hereOnly(d.cache)(ctx)
					return err
				}
				return nil
			}
		}, "host kernel, iptables", Note, []string{"not checked", "hitless build guest-tools"}},
		"disk space": {func(_ *testing.T, d *doctor) {
			d.places = append(d.places, site.Place{Dir: "/proc/self", Change: "HITLESS_CACHE"})
		}, "disk space, HITLESS_CACHE", Missing, []string{"2048 MB", "HITLESS_CACHE"}},
		"memory":          {func(_ *testing.T, d *doctor) { d.memoryMB = func() int { return 1000 } }, "memory", Missing, []string{"1000 MB", "end other programs"}},
		"memory for kube": {func(_ *testing.T, d *doctor) { d.memoryMB = func() int { return 3000 } }, "memory", Note, []string{"--controlplane replay"}},
		"package lists": {func(_ *testing.T, d *doctor) {
			d.kernel = func(context.Context, string) (string, error) { return "", errors.New("run `apt-get update` as root") }
		}, "guest kernel", Missing, []string{"apt-get update", "--install", "--kernel host"}},
		"root":       {func(_ *testing.T, d *doctor) { d.root = false }, "user", Note, []string{"root", "sudo"}},
		"priorities": {func(_ *testing.T, d *doctor) { d.priority = func() error { return os.ErrPermission } }, "priorities", Note, []string{"privileged", "different histories"}},
		"namespaces": {func(_ *testing.T, d *doctor) { d.host = func(context.Context, string) error { return refused } }, "host kernel", Note, []string{"privileged", "--kernel host"}},
		"IPVS": {func(_ *testing.T, d *doctor) {
			d.host = func(_ context.Context, mode string) error {
				if mode == "ipvs" {
					return errors.New("no IPVS")
				}
				return nil
			}
		}, "host kernel, ipvs", Note, []string{"no IPVS"}},
		"a cache that this user can write": {func(t *testing.T, d *doctor) {
			d.places = append(d.places, site.Place{Dir: "/proc/self/none", Change: "HITLESS_CACHE"})
		}, "disk space, HITLESS_CACHE", Missing, []string{"HITLESS_CACHE"}},
		"a Go that is old": {func(_ *testing.T, d *doctor) {
			d.goEnv = func(context.Context) (build.Go, error) { return build.Go{Version: "go1.25.3"}, nil }
		}, "building upstream", Note, []string{"go1.25.3", build.OldestGo, "--programs released"}},
		"a Go that runs": {func(t *testing.T, d *doctor) {
			program(t, "go", "echo broken >&2; exit 1")
			d.goEnv = build.InstalledGo
		}, "building upstream", Note, []string{"broken", "--programs released"}},
		"space for Go": {func(_ *testing.T, d *doctor) {
			d.goEnv = func(context.Context) (build.Go, error) {
				return build.Go{Version: "go1.26.8", Cache: "/proc/self", Modules: t.TempDir()}, nil
			}
		}, "disk space, GOCACHE", Note, []string{"5000 MB", "GOCACHE", "--programs released"}},
		"go": {func(_ *testing.T, d *doctor) {
			d.find = func(p string) string { return strings.TrimSuffix("/"+p, "/go") }
		}, "building upstream", Note, []string{"--programs released", "Go 1.26"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := wholeMachine(t)
			c.change(t, &d)
			seen := 0
			for _, f := range d.findings(t.Context()) {
				if f.Text == "" {
					t.Errorf("%s says nothing", f.Name)
				}
				if f.Name != c.at {
					if f.State == Missing {
						t.Errorf("%s is missing: %s", f.Name, f.Text)
					}
					continue
				}
				seen++
				if f.State != c.state {
					t.Errorf("%+v, want %s", f, c.state)
				}
				for _, part := range c.say {
					if !strings.Contains(f.Text, part) {
						t.Errorf("%s does not say %q: %s", f.Name, part, f.Text)
					}
				}
			}
			if seen != 1 {
				t.Errorf("%d findings are about %s", seen, c.at)
			}
			if _, err := os.Stat(d.cache); !os.IsNotExist(err) {
				t.Errorf("the doctor has made the cache: %v", err)
			}
		})
	}
}

// machineToInstall lacks programs, which its apt-get installs. It notes its calls.
func machineToInstall(t *testing.T, release string, lacks ...string) (i installer, calls, lines func() string) {
	t.Helper()
	dir, out := t.TempDir(), &bytes.Buffer{}
	if err := os.WriteFile(filepath.Join(dir, "os-release"), []byte(release), 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	program(t, "apt-get", `echo "$DEBIAN_FRONTEND $*" >>`+log)
	read := func() string {
		text, _ := os.ReadFile(log)
		return string(text)
	}
	missing := func(p string) bool {
		for _, l := range lacks {
			if l == p && !strings.Contains(read(), "install") {
				return true
			}
		}
		return false
	}
	return installer{has: func(p string) bool { return !missing(p) }, listed: func(context.Context) error { return nil }, root: true,
		release: filepath.Join(dir, "os-release"), out: out}, read, out.String
}

const (
	debian = "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n"
	ubuntu = "ID=ubuntu\nID_LIKE=debian\n"
	fedora = "PRETTY_NAME=\"Fedora Linux 43\"\nID=fedora\n"
)

// Only what is missing is installed, and the commands are printed.
func TestInstallInstallsWhatIsMissing(t *testing.T) {
	for _, release := range []string{debian, ubuntu} {
		i, calls, lines := machineToInstall(t, release, vm.QEMU)
		if err := i.install(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "noninteractive update -q\nnoninteractive install -y -q --no-install-recommends qemu-system-x86\n"
		if calls() != want || !strings.Contains(lines(), "apt-get install -y -q --no-install-recommends qemu-system-x86\n") {
			t.Errorf("%q: the calls are %q, the lines %q", release, calls(), lines())
		}
	}
	i, calls, _ := machineToInstall(t, debian)
	if err := i.install(t.Context()); err != nil || calls() != "" {
		t.Errorf("a machine that lacks nothing: %v, %q", err, calls())
	}
	i, calls, _ = machineToInstall(t, debian)
	i.listed = func(context.Context) error { return errors.New("no lists") }
	if err := i.install(t.Context()); err != nil || calls() != "noninteractive update -q\n" {
		t.Errorf("a machine without package lists: %v, %q", err, calls())
	}
}

// Where nothing can be installed, nothing is done, and the error says what to do.
func TestInstallThatIsNotPossible(t *testing.T) {
	for name, c := range map[string]struct {
		release string
		change  func(*installer)
		say     []string
	}{
		"another system": {fedora, func(*installer) {}, []string{"Fedora Linux 43", vm.QEMU}},
		"no release":     {debian, func(i *installer) { i.release = "/dev/null/none" }, []string{vm.QEMU}},
		"another user":   {debian, func(i *installer) { i.root = false }, []string{"apt-get update", "apt-get install -y -q --no-install-recommends qemu-system-x86", "root"}},
	} {
		i, calls, _ := machineToInstall(t, c.release, vm.QEMU)
		c.change(&i)
		err := i.install(t.Context())
		if !IsUsage(err) || calls() != "" {
			t.Errorf("%s: %v, calls %q", name, err, calls())
		}
		for _, part := range c.say {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not say %q: %v", name, part, err)
			}
		}
	}
}

func TestInstallThatFails(t *testing.T) {
	i, _, _ := machineToInstall(t, debian, vm.QEMU)
	program(t, "apt-get", `[ "$1" != install ] || { echo "E: no network"; exit 100; }`)
	if err := i.install(t.Context()); !IsUsage(err) || !strings.Contains(err.Error(), "qemu-system-x86") {
		t.Errorf("%v", err)
	}
	program(t, "apt-get", "exit 0")
	if err := i.install(t.Context()); !IsUsage(err) || !strings.Contains(err.Error(), vm.QEMU+" is still missing") {
		t.Errorf("apt-get that installs nothing: %v", err)
	}
}

// hack/packages.sh reads the list too: each row has four fields and a known group.
func TestPackageListIsWhole(t *testing.T) {
	rows := 0
	for line := range strings.Lines(packagesText) {
		if !strings.HasPrefix(line, "#") {
			rows++
		}
	}
	if all := requirements("base", "lab", "make", "tests", "browser", "cross"); len(all) != rows || rows < 8 {
		t.Errorf("%d rows, of them %d with all fields: %+v", rows, len(all), all)
	}
}

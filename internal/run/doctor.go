package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/vm"
)

// Finding is the result of one check of Doctor.
type Finding struct {
	Name string
	OK   bool
	Text string // the result, or what to do
}

// Doctor checks what this machine can run. It changes nothing.
func Doctor(ctx context.Context) []Finding {
	findings := []Finding{
		program("virtual machine", vm.QEMU, "qemu-system-x86"),
		program("kernel package", "apt-get", "apt"),
		program("unpacking it", "dpkg-deb", "dpkg"),
		program("building upstream", "go", "golang (1.26 or later)"),
		program("kube-proxy iptables", "xtables-nft-multi", "iptables"),
		program("kube-proxy ipvs", "ipset", "ipset"),
		program("kube-proxy conntrack", "conntrack", "conntrack"),
		program("kube-proxy nftables", "nft", "nftables"),
		program("haproxy balancer", "haproxy", "haproxy"),
	}
	free := site.AvailableMB()
	findings = append(findings, Finding{"memory", free > site.NeededMB(site.MemoryMB("kube"))-256,
		fmt.Sprintf("%d MB available; a lab with the real control plane needs %d MB, with the replay one %d MB",
			free, site.NeededMB(site.MemoryMB("kube")), site.NeededMB(site.MemoryMB("replay")))})
	var cpus unix.CPUSet
	err := unix.SchedGetaffinity(0, &cpus)
	findings = append(findings, Finding{"own CPU", err == nil, fmt.Sprintf("%d CPUs may be used; each run takes one for itself, and is not deterministic without it", cpus.Count())})
	return append(append(findings, hostKernel(ctx)...), cached(ctx)...)
}

// hostKernel tests which subjects --kernel host can run on this machine.
func hostKernel(ctx context.Context) []Finding {
	program, err := os.Executable()
	if err != nil {
		return []Finding{{"host kernel", false, err.Error()}}
	}
	var findings []Finding
	for _, mode := range site.HostModes {
		f := Finding{Name: "host kernel, " + mode, OK: true, Text: "subjects in this mode run in namespaces of this machine's kernel too: --kernel host"}
		if err := site.TryHost(ctx, program, mode); err != nil {
			f.OK, f.Text = false, "the VM runs such subjects, --kernel host cannot: "+err.Error()
		}
		findings = append(findings, f)
	}
	return findings
}

func program(what, name, pkg string) Finding {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		return Finding{what, false, fmt.Sprintf("%s is not installed; the package %s has it", name, pkg)}
	}
	return Finding{what, true, path}
}

func cached(context.Context) []Finding {
	dir, err := cache.Dir()
	if err != nil {
		return []Finding{{"cache", false, err.Error()}}
	}
	b := &build.Builder{Cache: filepath.Join(dir, "build")}
	found := []Finding{{"cache", true, dir}}
	for _, t := range site.ControlPlaneTargets {
		_, has := b.Cached(t)
		text := "built"
		if !has {
			text = "not built yet; the first run builds it, or `hitless build control-plane`"
		}
		found = append(found, Finding{t.Name, has, text})
	}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		found = append(found, Finding{"/dev/kvm", true, "exists and is not used: the virtual clock needs emulation"})
	}
	return found
}

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/memory"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// State is the result of a check of this machine.
type State string

// The states of findings.
const (
	Ready   State = "ok"
	Missing State = "missing" // a lab needs it
	Note    State = "note"    // a lab runs without it
)

// Finding is the result of one check of Doctor.
type Finding struct {
	Name  string
	State State
	Text  string // the result, or what to do
}

// doctor is what the checks look at.
type doctor struct {
	find     func(program string) string // its path; empty without it
	qemu     func(context.Context) (string, error)
	tryQEMU  func(context.Context) error // whether QEMU has the machine of a lab
	goEnv    func(context.Context) (build.Go, error)
	kernel   func(ctx context.Context, cacheDir string) (string, error)
	tools    func(ctx context.Context, cacheDir string) (tools.Set, bool) // those of guests, if they are here
	memoryMB func() int
	places   []site.Place
	cpus     func() (int, error)
	priority func() error // whether this user may give real-time priorities
	guest    error        // why there is no program for guests
	root     bool
	host     func(ctx context.Context, mode string) error // whether this machine's kernel can run a lab
	cache    string
}

// Doctor checks what this machine can run. It changes nothing.
func Doctor(ctx context.Context) ([]Finding, error) {
	if err := site.CheckPlatform(); err != nil {
		return []Finding{{"lab", Missing, err.Error()}}, nil
	}
	dir, err := cache.Dir()
	if err != nil {
		return nil, usagef("%w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := doctor{find: findProgram, qemu: site.QEMUVersion, tryQEMU: vm.TryQEMU, goEnv: build.InstalledGo, memoryMB: memory.AvailableMB, cpus: ownCPUs, priority: vm.TryPriority, root: os.Geteuid() == 0,
		kernel: vm.ReadyKernel, tools: cachedTools, guest: site.GuestProgram(program), places: site.Places("out", dir), cache: dir,
		host: func(ctx context.Context, mode string) error { return site.TryHost(ctx, program, mode, hereOnly(dir)) }}
	return d.findings(ctx), ctx.Err()
}

func (d doctor) findings(ctx context.Context) []Finding {
	findings := append(d.programs(ctx), d.guestProgram()...)
	findings = append(findings, d.kernelPackage(ctx), d.guestTools(ctx))
	cached, whole := d.cached()
	findings = append(append(findings, d.goCommand(ctx, whole)...), d.memory())
	findings = append(findings, d.disk()...)
	findings = append(findings, d.user()...)
	return append(append(findings, d.hostKernel(ctx)...), cached...)
}

// programs looks for the programs of a lab, and asks QEMU for its version.
func (d doctor) programs(ctx context.Context) (findings []Finding) {
	for _, r := range requirements("base", "lab") {
		f := Finding{r.purpose, Ready, d.find(r.program)}
		switch {
		case f.Text == "":
			f.State, f.Text = Missing, fmt.Sprintf("%s is not installed; the package %s of Debian and Ubuntu has it: `hitless doctor --install`", r.program, r.packageName)
		case r.program == vm.QEMU:
			version, err := d.qemu(ctx)
			f.Text += ": " + version
			if err == nil {
				err = d.tryQEMU(ctx)
			}
			if err != nil {
				f.State, f.Text = Missing, qemuAdvice(version, err)
			}
		}
		findings = append(findings, f)
	}
	return findings
}

func (d doctor) kernelPackage(ctx context.Context) Finding {
	id, err := d.kernel(ctx, filepath.Join(d.cache, "kernel"))
	if err != nil {
		return Finding{"guest kernel", Missing, err.Error() + ", or `hitless doctor --install`; a lab with --kernel host needs none"}
	}
	return Finding{"guest kernel", Ready, id}
}

func cachedTools(ctx context.Context, cacheDir string) (tools.Set, bool) {
	return tools.Cached(ctx, site.ToolsDir(cacheDir))
}

// errNoTools is the error of a check that needs the guest's tools, where they are not in the cache.
var errNoTools = errors.New("the guest's tools, which the check needs, are not here yet")

// hereOnly returns the guest's tools, and downloads nothing.
func hereOnly(cacheDir string) func(context.Context) (tools.Set, error) {
	return func(ctx context.Context) (tools.Set, error) {
		if set, here := cachedTools(ctx, cacheDir); here {
			return set, nil
		}
		return tools.Set{}, errNoTools
	}
}

// guestProgram says nothing where guests can execute this program, or another one.
func (d doctor) guestProgram() []Finding {
	if d.guest == nil {
		return nil
	}
	return []Finding{{"guest program", Missing, d.guest.Error()}}
}

func (d doctor) guestTools(ctx context.Context) Finding {
	if set, here := d.tools(ctx, d.cache); here {
		return Finding{"guest tools", Ready, set.String()}
	}
	return Finding{"guest tools", Note, "not here yet; the first run that needs iptables, ipset, nft, conntrack or haproxy downloads them; so does `hitless build guest-tools`"}
}

// qemuAdvice says what to do about a QEMU that cannot run a lab.
func qemuAdvice(version string, err error) string {
	if version == "" { // the error of the version says it
		return err.Error()
	}
	return fmt.Sprintf("%v (%s); install the whole QEMU %s or later, on Debian and Ubuntu the package qemu-system-x86, or use --kernel host", err, version, site.OldestQEMU)
}

// goCommand checks what a build of the real control plane needs. whole tells that no program is left to build.
func (d doctor) goCommand(ctx context.Context, whole bool) []Finding {
	f := Finding{"building upstream", Note, ""}
	const instead = ", or use --programs released or --binaries, which compile nothing"
	path := d.find("go")
	if path == "" {
		f.Text = "go is not installed; install Go 1.26 or later" + instead
		return []Finding{f}
	}
	installed, err := d.goEnv(ctx)
	switch {
	case err != nil:
		f.Text = err.Error() + "; install Go 1.26 or later" + instead
		return []Finding{f}
	case installed.TooOld():
		f.Text = fmt.Sprintf("%s is %s, and the real control plane needs %s; install a later one%s", path, installed.Version, build.OldestGo, instead)
		return []Finding{f}
	}
	f.State, f.Text = Ready, path+": "+installed.Version
	all := []Finding{f}
	if whole {
		return all
	}
	for _, p := range []site.Place{{Dir: installed.Cache, Change: "GOCACHE", NeedMB: build.CacheMB}, {Dir: installed.Modules, Change: "GOMODCACHE", NeedMB: build.ModulesMB}} {
		f := place(p)
		if f.State == Missing {
			f.State, f.Text = Note, f.Text+instead
		}
		all = append(all, f)
	}
	return all
}

func (d doctor) memory() Finding {
	free, kube, replay := d.memoryMB(), site.NeededMB(site.MemoryMB(record.ControlKube)), site.NeededMB(site.MemoryMB(record.ControlReplay))
	f := Finding{"memory", Ready, fmt.Sprintf("%d MB available; a lab with the real control plane needs %d MB, with the replay one %d MB", free, kube, replay)}
	switch {
	case free < replay:
		f.State, f.Text = Missing, f.Text+"; end other programs, or give this machine more"
	case free < kube:
		f.State, f.Text = Note, f.Text+"; use --controlplane replay"
	}
	return f
}

func (d doctor) disk() (findings []Finding) {
	for _, p := range d.places {
		findings = append(findings, place(p))
	}
	return findings
}

// place checks the free space of a folder.
func place(p site.Place) Finding {
	f := Finding{"disk space, " + p.Change, Ready, ""}
	free, err := p.Free()
	if f.Text = fmt.Sprintf("%d MB free in %s", free, p.Dir); err != nil {
		f.State, f.Text = Missing, err.Error()
	}
	return f
}

// user checks what the user, or the container, may do.
func (d doctor) user() []Finding {
	n, err := d.cpus()
	cpu := Finding{"own CPU", Ready, fmt.Sprintf("%d CPUs may be used; each run takes one for itself", n)}
	if err != nil {
		cpu.State, cpu.Text = Missing, fmt.Sprintf("the CPUs of this process cannot be read (%v); in a container use the privileged mode", err)
	}
	user := Finding{"user", Ready, "root"}
	if !d.root {
		user.State, user.Text = Note, "not root: runs work, and packages can only be installed as root (`sudo hitless doctor --install`)"
	}
	priority := Finding{"priorities", Ready, "real-time priorities are allowed: equal inputs give equal histories"}
	if err := d.priority(); err != nil {
		priority.State = Note
		priority.Text = fmt.Sprintf("real-time priorities are refused (%v): equal inputs may give different histories; run as root, in a container with the privileged mode", err)
	}
	return []Finding{user, cpu, priority}
}

// hostKernel tests which subjects --kernel host can run on this machine.
func (d doctor) hostKernel(ctx context.Context) []Finding {
	if err := d.host(ctx, ""); err != nil {
		return []Finding{{"host kernel", Note, "the VM runs all subjects, --kernel host none: " + err.Error()}}
	}
	var findings []Finding
	for _, mode := range site.HostModes {
		f := Finding{"host kernel, " + mode, Ready, "subjects in this mode run in namespaces of this machine's kernel too: --kernel host"}
		switch err := d.host(ctx, mode); {
		case errors.Is(err, errNoTools):
			f.State, f.Text = Note, "not checked: "+err.Error()+"; `hitless build guest-tools` downloads them"
		case err != nil:
			f.State, f.Text = Note, "the VM runs such subjects, --kernel host cannot: "+err.Error()
		}
		findings = append(findings, f)
	}
	return findings
}

// cached tells which programs of the control plane are in the cache, and whether all built ones are.
func (d doctor) cached() (found []Finding, whole bool) {
	found, whole = []Finding{{"cache", Ready, d.cache}}, true
	built := &build.Builder{Cache: filepath.Join(d.cache, "build")}
	released := &build.Builder{Cache: built.Cache, Programs: build.Released}
	for _, t := range build.ControlPlane {
		f := Finding{t.Name, Note, "not here yet; the first run builds it, or with --programs released downloads it; so does `hitless build control-plane`"}
		_, isBuilt := built.Cached(t)
		_, isReleased := released.Cached(t)
		switch whole = whole && isBuilt; {
		case isBuilt:
			f.State, f.Text = Ready, "built"
		case isReleased:
			f.State, f.Text = Ready, "downloaded, for --programs released"
		}
		found = append(found, f)
	}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		found = append(found, Finding{"/dev/kvm", Ready, "exists and is not used: the virtual clock needs emulation"})
	}
	return found, whole
}

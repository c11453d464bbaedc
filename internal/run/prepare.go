package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// ControlPlaneTargets are the programs of the lab's control plane, in the version that hitless is tested with.
var ControlPlaneTargets = []build.Target{{Name: "kube-apiserver", Version: "v1.37.1"}, {Name: "kube-controller-manager", Version: "v1.37.1"},
	{Name: "kube-scheduler", Version: "v1.37.1"}, {Name: "etcd", Version: "v3.7.0"}}

// prepared is a guest that is ready to start.
type prepared struct {
	kernel         reports.Kernel
	kernelPackage  string
	clock          string
	inputs         string // digest
	subjectVersion string
	notes          []string
	where          string // for the line of progress that says that it starts
	// start runs the guest. At each checkpoint that the guest tells, kept gets the region as it is then.
	start func(ctx context.Context, kept func(region []byte)) (*vm.Outcome, error)
}

// memoryMB is what a VM gets; the packed files stand in it too.
func memoryMB(controlPlane string) int {
	if controlPlane == "kube" {
		return 6144
	}
	return 2048
}

func (o Options) memoryMB() int {
	if o.MemoryMB > 0 {
		return o.MemoryMB
	}
	return memoryMB(o.ControlPlane) + o.objectsMB()
}

// objectsMB is what the objects of a timeline take: in the control plane, and in whoever watches them. A recording of 10,000 Services
// with 4 endpoints each has 20,000 that proxies watch.
func (o Options) objectsMB() int {
	if o.Timeline == nil {
		return 0
	}
	return objectsOf(o.Timeline.Timeline) * guest.ObjectBytes >> 20
}

func (o Options) prepare(ctx context.Context, plan guest.Plan, spec subject.Spec) (*prepared, error) {
	img := vm.NewImage()
	img.Add(guest.Program, o.Program, 0o755)
	if plan.NeedsSubjects() {
		if err := o.addPrograms(ctx, img, plan, spec); err != nil {
			return nil, err
		}
	}
	data, err := plan.Marshal()
	if err != nil {
		return nil, err
	}
	var p *prepared
	if plan.Kernel == guest.KernelHost {
		p, err = o.prepareHost(img, plan, data)
	} else {
		p, err = o.prepareVM(ctx, img, plan, data)
	}
	if err == nil {
		p.subjectVersion = spec.Version
	}
	return p, err
}

func (o Options) prepareVM(ctx context.Context, img *vm.Image, plan guest.Plan, data []byte) (*prepared, error) {
	p := &prepared{clock: "virtual"}
	if o.Clock == "real" {
		p.clock = "real"
	}
	kernel, err := vm.FetchKernel(ctx, filepath.Join(o.Cache, "kernel"), o.message)
	if err != nil {
		return nil, UsageError{err}
	}
	p.kernel, p.kernelPackage = reports.Kernel{Kind: "vm", Release: kernel.Release}, kernel.Package
	img.Link("/init", strings.TrimPrefix(guest.Program, "/"))
	missing, err := img.AddModules(kernel, vm.Modules...)
	if err != nil {
		return nil, UsageError{err}
	}
	p.notes = append(p.notes, "modules that this kernel lacks or has built in: "+strings.Join(missing, " "))
	file, digest, err := img.Pack(filepath.Join(o.Cache, "initramfs"))
	if err != nil {
		return nil, err
	}
	base, err := plan.Base().Marshal()
	if err != nil {
		return nil, err
	}
	version, err := qemuVersion(ctx)
	if err != nil {
		return nil, err
	}
	boot := vm.Boot{Kernel: kernel, Initrd: file, Base: base, Plan: data, StopAt: o.StopAt, MemoryMB: o.memoryMB(),
		MemoryGroups: plan.Scenario == bench.Scenario, RealTime: p.clock == "real", Deadline: o.deadline(plan)}
	if !o.Cold {
		boot.Snapshots = filepath.Join(o.Cache, "snapshots")
		boot.Key = inputsDigest(string(base), digest, kernel.Package, version, fmt.Sprint(boot.MemoryMB, boot.MemoryGroups))[:24]
	}
	p.start = func(ctx context.Context, kept func([]byte)) (*vm.Outcome, error) {
		boot := boot
		boot.Line = func(line string, region []byte) {
			if e := o.guestLine(line); e.Kind == progress.Checkpoint {
				kept(region)
			}
		}
		return vm.Run(ctx, boot)
	}
	p.where = fmt.Sprintf("booting %s with %d MB", kernel.Release, boot.MemoryMB)
	p.inputs = inputsDigest(string(data), digest, kernel.Package, version, p.clock)
	return p, nil
}

// addPrograms puts the control plane, the subject and the subject's tools into the guest.
func (o Options) addPrograms(ctx context.Context, img *vm.Image, plan guest.Plan, spec subject.Spec) error {
	var targets []build.Target
	if plan.ControlPlane == "kube" {
		targets = append(targets, ControlPlaneTargets...)
	}
	proxies := []subject.Spec{spec}
	if plan.Next != nil {
		next, err := subject.Parse(plan.Next.Subject)
		if err != nil {
			return UsageError{err}
		}
		proxies = append(proxies, next)
	}
	for _, p := range proxies {
		if t := proxyTarget(p); p.Name == "kube-proxy" && !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	builder := &build.Builder{Cache: filepath.Join(o.Cache, "build"), Prebuilt: o.Binaries, Progress: o.message}
	binaries, err := builder.Build(ctx, targets...)
	if err != nil {
		return UsageError{err}
	}
	for _, b := range binaries {
		name := b.Target.Name
		if i := slices.IndexFunc(proxies, func(p subject.Spec) bool { return proxyTarget(p) == b.Target }); i >= 0 {
			name = proxies[i].Binary()
		}
		if err := img.AddKnown(path.Join(guest.Binaries, name), b.Path, 0o755, b.Sha256); err != nil {
			return err
		}
	}
	if scenarios.BalancerKind.Of(plan.Parameters) == scenarios.HAProxy {
		if err := addTool(img, "/usr/sbin/haproxy", "haproxy"); err != nil {
			return err
		}
	}
	scenario, _ := scenarios.Find(plan.Scenario, guest.Offers(plan.ControlPlane)) // a benchmark has no scenario, and needs no tools for one
	if slices.Contains(scenario.Needs(plan.Parameters), scenarios.NodeCommands) || slices.ContainsFunc(proxies, func(p subject.Spec) bool { return p.Name == "kube-proxy" }) {
		if err := AddTools(img); err != nil {
			return err
		}
	}
	if spec.Exec != nil {
		return addExec(img, spec.Exec)
	}
	return nil
}

// proxyTarget is what to build for a kube-proxy.
func proxyTarget(p subject.Spec) build.Target { return build.Target{Name: p.Name, Version: p.Version} }

func addTool(img *vm.Image, path, packageName string) error {
	if _, err := os.Stat(path); err != nil {
		return usagef("this run needs %s, which is not installed; `apt-get install %s` brings it", filepath.Base(path), packageName)
	}
	return img.AddProgram(path, path)
}

// AddTools puts the programs into a guest that a kube-proxy calls. An error says which is not installed here.
func AddTools(img *vm.Image) error {
	for _, t := range []struct{ path, packageName string }{
		{"/usr/sbin/ipset", "ipset"}, {"/usr/sbin/conntrack", "conntrack"}, {"/usr/sbin/nft", "nftables"},
		{"/usr/bin/cut", "coreutils"}, // 1.11 to 1.15 read /proc/modules with it, and leave IPVS mode without it
	} {
		if err := addTool(img, t.path, t.packageName); err != nil {
			return err
		}
	}
	// What it would load is there. Without it kube-proxy takes the kernel for one that has no IPVS, and leaves its table behind when
	// it changes to another mode.
	if err := img.AddProgram("/usr/sbin/modprobe", "/usr/bin/true"); err != nil {
		return err
	}
	img.Text("/etc/protocols", "icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n") // ipset asks for the names
	return addIptables(img)
}

// addIptables puts iptables into the guest with its other names and its extensions, which it loads while it runs.
func addIptables(img *vm.Image) error {
	if err := addTool(img, "/usr/sbin/xtables-nft-multi", "iptables"); err != nil {
		return err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
		"iptables-nft-save", "iptables-nft-restore"} {
		img.Link("/usr/sbin/"+name, "xtables-nft-multi")
	}
	extensions, err := filepath.Glob("/usr/lib/" + gnuTriplet() + "/xtables/*.so")
	if err != nil || len(extensions) == 0 {
		return usagef("the extensions of iptables are not where Debian puts them; `apt-get install iptables` brings them")
	}
	for _, file := range extensions {
		if err := img.AddProgram(file, file); err != nil {
			return err
		}
	}
	return nil
}

func gnuTriplet() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// objectTime is room for one object of a timeline, which is made before the traffic and reaches each proxy. A guest needs less.
const objectTime = 20 * time.Millisecond

// deadline is the wall time that a run may take: a quarter of an hour for the lab, and room for the scenario's own length.
func (o Options) deadline(plan guest.Plan) time.Duration {
	if o.Deadline > 0 {
		return o.Deadline
	}
	if length := scenarios.ChurnFor.Of(plan.Parameters); length > 0 {
		return 15*time.Minute + length // slower than real time is a defect
	}
	if o.Timeline != nil {
		return 15*time.Minute + o.Timeline.Length() + time.Duration(plan.Objects)*objectTime
	}
	rollouts := scenarios.Rollouts.Of(plan.Parameters)
	return 15*time.Minute + time.Duration(rollouts)*3*time.Minute
}

func qemuVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, vm.QEMU, "--version").Output()
	if err != nil {
		return "", usagef("asking %s for its version: %w; `apt-get install qemu-system-x86` brings it", vm.QEMU, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first, nil
}

// checkMachine refuses a run that cannot end well: tools, memory and disk.
func checkMachine(o Options, plan guest.Plan) error {
	need := o.memoryMB()*2/3 + 256
	if plan.Kernel == guest.KernelHost {
		need = hostMemoryMB(o.ControlPlane) + o.objectsMB()
	} else if _, err := exec.LookPath(vm.QEMU); err != nil {
		return usagef("%s is not installed; `apt-get install qemu-system-x86` brings it", vm.QEMU)
	}
	if err := o.checkMemory(availableMB(), need, plan.Objects); err != nil {
		return err
	}
	return checkDisk(o)
}

// checkMemory refuses a run that needs more than is free, in MB.
func (o Options) checkMemory(free, need, objects int) error {
	if free >= need {
		return nil
	}
	why := ""
	if mb := o.objectsMB(); mb > 0 {
		why = fmt.Sprintf(", %d MB of them for the %d objects of %s", mb, objects, o.Timeline.File)
	}
	return usagef("%d MB of memory are available; a lab with the %s control plane needs %d MB%s", free, o.ControlPlane, need, why)
}

// availableMB is MemAvailable of /proc/meminfo (proc(5)), 1 TB when it cannot be read: then the guest's start tells.
func availableMB() int {
	data, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(data)) {
		if rest, is := strings.CutPrefix(line, "MemAvailable:"); is {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err == nil {
				return kb >> 10
			}
		}
	}
	return 1 << 20
}

// hostFacts is host.json: what the history must not depend on.
type hostFacts struct {
	Command     []string `json:"command"`
	Out         string   `json:"out"`
	Started     string   `json:"started"` // RFC 3339
	WallSeconds float64  `json:"wallSeconds"`
	CPUSeconds  float64  `json:"cpuSeconds,omitempty"` // that the guest's machine took; more than wall is not possible
	CPU         int      `json:"cpu"`
	QEMU        []string `json:"qemu"`
	Kernel      string   `json:"kernelPackage"`
	Notes       []string `json:"notes"`
}

func (o Options) host(p *prepared, outcome *vm.Outcome) hostFacts {
	started := time.Now().Add(-outcome.Wall).UTC().Format(time.RFC3339)
	return hostFacts{Command: os.Args, Out: o.Out, Started: started, WallSeconds: outcome.Wall.Seconds(), CPUSeconds: outcome.CPUTime.Seconds(),
		CPU: outcome.CPU, QEMU: outcome.Args, Kernel: p.kernelPackage, Notes: p.notes}
}

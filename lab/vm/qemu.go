// Package vm boots a stock distribution kernel in QEMU with hitless as its only program. The plan goes in and the
// history comes out through shared memory. With the virtual clock the same inputs give the same history, byte for
// byte.
//
// Package lab/host uses the region, the image and the CPU reservation of this package without a VM.
//
// The package does not interpret the plan or the history.
package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// Boot configures a guest.
type Boot struct {
	Kernel Kernel
	// Initrd has the guest's first program and modules, Files all others: the guest boots, pauses, and goes on with Files. Both are from
	// Image.Pack.
	Initrd, Files string
	// Base is the plan as the guest knows it between its first and its second pause, and Plan the whole. Guests with the same Base are
	// identical up to the second pause.
	Base, Plan []byte
	// StopAt is the run's time at which the guest stops for inspection; 0 for never.
	StopAt   time.Duration
	MemoryMB int
	// Snapshots is the directory for snapshots of paused guests, empty for none. BootKey and Key, of letters and digits, identify the
	// guest's inputs up to its first and its second pause. A restored guest executes the same instructions as after a boot.
	Snapshots, BootKey, Key string
	// RealTime makes the guest's clock follow the host's; otherwise the clock is virtual.
	RealTime bool
	// MemoryGroups enables memory accounting by control group, which wakes the kernel every two seconds.
	MemoryGroups bool
	// KVM uses hardware virtualisation; only with RealTime.
	KVM bool
	// Standing makes the guest a server for programs of the host; nil for an isolated one. Only with RealTime.
	Standing *Standing
	// Call answers the calls that the guest makes after its last pause; nil for a guest that makes none. Only with the virtual clock.
	Call func(request []byte) ([]byte, error)
	// Deadline is the wall time after which the guest is killed, 0 for none.
	Deadline time.Duration
	// Line gets each line of the console with the region. Everything that the guest wrote into the region before it
	// printed the line is visible.
	Line func(line string, region []byte)
}

// Standing is what a guest has that serves programs of the host. Such a guest has the host's date, and reserves no CPU.
type Standing struct {
	Tap  *os.File // the other end of the guest's only network device
	CPUs int      // of the guest, at least 1; they need not run in step
}

// Outcome is the result of a guest. Close releases its memory.
type Outcome struct {
	Region  []byte
	Console []string      // the last lines
	Wall    time.Duration // how long QEMU ran
	CPUTime time.Duration // CPU time of QEMU; 0 on the host's kernel
	CPU     int           // host CPU that it ran on; AnyCPU if it is bound to none
	Args    []string      // QEMU's command line without paths
	file    *os.File
}

// Close releases the region's memory.
func (o *Outcome) Close() error {
	return errors.Join(unmap(o.Region), o.file.Close())
}

// AnyCPU is the CPU of a guest that is bound to none.
const AnyCPU = -1

// firstExtraFile is the descriptor in QEMU of the first of exec.Cmd's ExtraFiles.
const firstExtraFile = 3

// QEMU is the program that boots the guest.
const QEMU = "qemu-system-x86_64"

// commandLine returns QEMU's arguments, which isolate the guest from outside input while it runs. docs/determinism.md
// explains each switch. files is the size of the device with the guest's files.
func (b Boot) commandLine(dir string, files int64, restored bool) []string {
	cpus, date := 1, "base=2026-01-01T00:00:00,clock=vm"
	if b.Standing != nil {
		cpus, date = b.Standing.CPUs, "base=utc"
	}
	args := []string{"-nodefaults", "-no-user-config", "-name", "hitless,debug-threads=on", "-vga", "none", "-M", "q35,hpet=off,vmport=off",
		"-smp", fmt.Sprint(cpus), "-rtc", date, "-m", fmt.Sprint(b.MemoryMB),
		"-display", "none", "-monitor", "none", "-no-reboot"}
	switch {
	case b.Standing != nil:
		args = append(args, "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "qemu64",
			"-netdev", fmt.Sprintf("tap,id=outside,fd=%d", firstExtraFile), "-device", "virtio-net-pci,netdev=outside,romfile=")
	case b.KVM:
		args = append(args, "-accel", "kvm", "-cpu", "host")
	case b.RealTime:
		args = append(args, "-accel", "tcg,thread=single,tb-size=512", "-cpu", "qemu64")
	default:
		args = append(args, "-accel", "tcg,thread=single,tb-size=512", "-icount", "shift=0,sleep=off", "-cpu", "qemu64")
	}
	kernelArgs := "console=ttyS0 panic=-1 quiet mitigations=off nowatchdog nokaslr tsc=reliable " +
		"psi=0 " + // unused accounting that wakes the kernel every two seconds
		"norandmaps " + // QEMU translates a library again for each address that it is loaded at
		"init_on_alloc=0 lsm=capability audit=0 " + // work for each system call that no Service proxy depends on
		"random.trust_bootloader=off random.trust_cpu=off"
	if !b.MemoryGroups {
		kernelArgs += " cgroup_disable=memory"
	}
	if b.pauses() {
		args = append(args, "-device", "pvpanic-pci", "-action", "panic=pause")
		args = append(args, monitorArgs...)
	}
	if restored {
		args = append(args, "-incoming", "defer")
	}
	return append(args,
		"-serial", "file:"+filepath.Join(dir, "console.log"),
		"-object", fmt.Sprintf("memory-backend-file,id=region,share=on,size=%d,mem-path=%s", RegionSize, filepath.Join(dir, "region")),
		"-device", "ivshmem-plain,memdev=region,master=on", // only a master's memory is part of a snapshot
		"-object", fmt.Sprintf("memory-backend-file,id=files,share=on,size=%d,mem-path=%s", files, filepath.Join(dir, "files")),
		"-device", "ivshmem-plain,memdev=files,master=on",
		"-kernel", b.Kernel.Image, "-initrd", b.Initrd, "-append", kernelArgs)
}

// Run boots the guest and waits until it ends, the deadline passes or ctx is cancelled. An Outcome with a console may
// accompany an error. No process or file stays on the host.
func Run(ctx context.Context, b Boot) (*Outcome, error) {
	path, err := exec.LookPath(QEMU)
	if err != nil {
		return nil, fmt.Errorf("booting the guest: %s is not installed; run `apt-get install qemu-system-x86`", QEMU)
	}
	for _, name := range []string{b.Initrd, b.Files} {
		image, err := cache.Hold(name)
		if err != nil {
			return nil, fmt.Errorf("opening the guest's files: %w", err)
		}
		defer image.Close()
	}
	line := func(string, []byte) {}
	if b.Line != nil {
		line = b.Line
	}
	if b.Standing != nil {
		return b.runOnce(ctx, path, AnyCPU, nil)
	}
	cpu, err := AcquireCPU(ctx, func(text string) { line(text, nil) })
	if err != nil {
		return nil, err
	}
	defer cpu.Release()
	for {
		out, err := b.fromSnapshot(ctx, path, cpu.Number)
		if refused := new(snapshotError); !errors.As(err, &refused) {
			return out, err
		}
		line("hitless: starting again, because the snapshot could not be restored: "+err.Error(), nil)
		if err := out.Close(); err != nil {
			return nil, err
		}
	}
}

// fromSnapshot runs the guest from its latest snapshot, or boots it. A snapshot that cannot be restored is removed, with a snapshotError.
func (b Boot) fromSnapshot(ctx context.Context, path string, cpu int) (*Outcome, error) {
	saved := b.snapshot()
	if saved == nil {
		return b.runOnce(ctx, path, cpu, nil)
	}
	defer saved.Close()
	out, err := b.runOnce(ctx, path, cpu, saved)
	if refused := new(snapshotError); errors.As(err, &refused) {
		if kept := os.RemoveAll(saved.Name()); kept != nil { // damage may be a directory
			return out, fmt.Errorf("removing a damaged snapshot: %w", kept)
		}
	}
	return out, err
}

// pauses reports whether the guest pauses itself, which it does with the virtual clock.
func (b Boot) pauses() bool { return !b.RealTime && !b.KVM }

// snapshot opens the saved guest of another run, that of its latest pause if there are several; nil if there is none.
func (b Boot) snapshot() *snapshot {
	if !b.pauses() || b.Snapshots == "" {
		return nil
	}
	for _, at := range []pause{atSettled, atBooted} {
		if s := openSnapshot(b.Snapshots, at, b.keys()[at]); s != nil {
			return s
		}
	}
	return nil
}

// runOnce runs the guest, from a snapshot if from is not nil. After a snapshotError the guest may be started again without it.
func (b Boot) runOnce(ctx context.Context, path string, cpu int, from *snapshot) (*Outcome, error) {
	own, err := cache.NewTempDir("hitless-vm-")
	if err != nil {
		return nil, err
	}
	defer own.Remove()
	size, err := b.FilesSize()
	if err != nil {
		return nil, err
	}
	files, err := newDeviceFile(filepath.Join(own.Path, "files"), size)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	out, err := mapRegion(filepath.Join(own.Path, "region"))
	if err != nil {
		return nil, err
	}
	if !b.pauses() {
		if err := errors.Join(b.putFiles(files), b.putPlan(out.Region)); err != nil {
			out.Close()
			return nil, err
		}
	}
	out.CPU = cpu
	args := b.commandLine(own.Path, files.size, from != nil)
	for _, a := range args {
		out.Args = append(out.Args, strings.ReplaceAll(a, own.Path+"/", ""))
	}
	return out, b.supervise(ctx, path, args, own.Path, from, files, out)
}

// FilesSize is the size in bytes of the device with the guest's files.
func (b Boot) FilesSize() (int64, error) {
	info, err := os.Stat(b.Files)
	if err != nil {
		return 0, fmt.Errorf("reading the size of the guest's files: %w", err)
	}
	return filesSize(info.Size()), nil
}

// putFiles writes the guest's files into their device.
func (b Boot) putFiles(to *deviceFile) error {
	f, err := os.Open(b.Files)
	if err != nil {
		return fmt.Errorf("opening the guest's files: %w", err)
	}
	defer f.Close()
	return to.put(f)
}

// putPlan writes the plan and the stop time into the region.
func (b Boot) putPlan(region []byte) error {
	if err := PutPlan(region, b.Plan); err != nil {
		return err
	}
	if b.StopAt > 0 {
		PutStop(region, b.StopAt)
	}
	return nil
}

func mapRegion(path string) (*Outcome, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the region between guest and host: %w", err)
	}
	return NewOutcome(f)
}

// NewOutcome initialises the file as the region of a guest. The outcome owns the file; after an error the file is
// closed.
func NewOutcome(f *os.File) (*Outcome, error) {
	if err := f.Truncate(RegionSize); err != nil {
		f.Close()
		return nil, fmt.Errorf("making the region between guest and host (%d MB): %w", RegionSize>>20, err)
	}
	region, err := MapRegion(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Outcome{Region: region, file: f}, nil
}

// MapRegion maps a region's file into memory, on the host or in the guest.
func MapRegion(f *os.File) ([]byte, error) {
	region, err := mapFile(f, 0, RegionSize, true)
	if err != nil {
		return nil, fmt.Errorf("mapping the region between guest and host: %w", err)
	}
	return region, nil
}

// supervise starts QEMU and waits.
func (b Boot) supervise(ctx context.Context, path string, args []string, dir string, from *snapshot, files *deviceFile, out *Outcome) error {
	if b.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Deadline, fmt.Errorf("the guest did not end within %s of wall time", b.Deadline))
		defer cancel()
	}
	p := newProcess(path, args)
	var m *monitor
	if b.pauses() {
		ours, theirs, err := newMonitor()
		if err != nil {
			return err
		}
		defer ours.conn.Close() // after QEMU's end: closing would wake QEMU while the guest runs
		m, p.cmd.ExtraFiles = ours, []*os.File{theirs}
	} else if b.Standing != nil {
		p.cmd.ExtraFiles = []*os.File{b.Standing.Tap}
	}
	begin := time.Now()
	if err := p.start(out.CPU, m); err != nil {
		return err
	}
	line := func(text string) {
		if b.Line != nil {
			b.Line(text, out.Region)
		}
	}
	tail := followConsole(filepath.Join(dir, "console.log"), line)
	exit, cause := p.wait(ctx, b.resume(m, from, files, out.Region, line))
	out.Wall = time.Since(begin)
	if state := p.cmd.ProcessState; state != nil { // set by Wait, which precedes `ended`
		out.CPUTime = state.UserTime() + state.SystemTime()
	}
	out.Console = tail()
	switch {
	case cause != nil:
		return cause
	case exit != nil:
		return fmt.Errorf("%s ended with %w: %s", QEMU, exit, strings.TrimSpace(p.stderr.String()))
	}
	return nil
}

package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/cache"
)

// Boot says what to boot and for how long at most.
type Boot struct {
	Kernel Kernel
	Initrd string // from Image.Pack
	// Base is what the region holds when the guest boots, and Plan what it holds when the guest goes on after its pause. Up to there
	// guests with the same Base are the same.
	Base, Plan []byte
	// StopAt is when the guest stops and looks, in the run's time; 0 for never.
	StopAt   time.Duration
	MemoryMB int
	// Snapshots is the folder for guests that were saved at their pause, empty for none; Key is what tells this one from others, of
	// letters and digits. A guest that begins from a snapshot does what it does after a boot, instruction for instruction.
	Snapshots, Key string
	// RealTime lets the guest's clock follow the host's; otherwise its time is a function of executed instructions.
	RealTime bool
	// MemoryGroups has the kernel account memory by control group, which wakes it every two seconds.
	MemoryGroups bool
	// KVM uses the hardware's virtualisation; only with RealTime.
	KVM bool
	// Deadline is the wall time after which the guest is ended, 0 for none.
	Deadline time.Duration
	// Line gets each line that the guest prints, as it comes, and the region as it is then: what the guest wrote before it
	// printed the line is there.
	Line func(line string, region []byte)
}

// Outcome is what a guest left behind. Close lets its memory go.
type Outcome struct {
	Region  []byte
	Console []string      // the last lines
	Wall    time.Duration // how long QEMU ran
	CPUTime time.Duration // how much of the host's CPU it took; 0 on the host's kernel
	CPU     int           // the host's CPU that it ran on
	Args    []string      // QEMU's command line without paths
	file    *os.File
}

// Close releases the region's memory.
func (o *Outcome) Close() error {
	return errors.Join(unix.Munmap(o.Region), o.file.Close())
}

// QEMU is the program that boots the guest.
const QEMU = "qemu-system-x86_64"

// commandLine is the guest's part of design: nothing from outside reaches it while it runs. See docs/determinism.md for what each
// switch guards.
func (b Boot) commandLine(dir string, restored bool) []string {
	args := []string{"-nodefaults", "-no-user-config", "-name", "hitless,debug-threads=on", "-vga", "none", "-M", "q35,hpet=off,vmport=off",
		"-smp", "1", "-rtc", "base=2026-01-01T00:00:00,clock=vm", "-m", fmt.Sprint(b.MemoryMB),
		"-display", "none", "-monitor", "none", "-no-reboot"}
	switch {
	case b.KVM:
		args = append(args, "-accel", "kvm", "-cpu", "host")
	case b.RealTime:
		args = append(args, "-accel", "tcg,thread=single,tb-size=512", "-cpu", "qemu64")
	default:
		args = append(args, "-accel", "tcg,thread=single,tb-size=512", "-icount", "shift=0,sleep=off", "-cpu", "qemu64")
	}
	kernelArgs := "console=ttyS0 panic=-1 quiet mitigations=off nowatchdog nokaslr tsc=reliable " +
		"psi=0 " + // accounting that wakes the kernel every two seconds, for nobody
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
		"-device", "ivshmem-plain,memdev=region,master=on", // the master's memory is saved with the guest
		"-kernel", b.Kernel.Image, "-initrd", b.Initrd, "-append", kernelArgs)
}

// Run boots the guest and waits for its end: by itself, at the deadline, or when ctx is cancelled. An Outcome comes
// back with an error too, when there is a console to show. Nothing is left on the host: neither process nor file.
func Run(ctx context.Context, b Boot) (*Outcome, error) {
	path, err := exec.LookPath(QEMU)
	if err != nil {
		return nil, fmt.Errorf("booting the guest: %s is not installed; `apt-get install qemu-system-x86` brings it", QEMU)
	}
	image, err := cache.Hold(b.Initrd)
	if err != nil {
		return nil, fmt.Errorf("opening the guest's files: %w", err)
	}
	defer image.Close()
	line := func(string, []byte) {}
	if b.Line != nil {
		line = b.Line
	}
	cpu, err := TakeCPU(ctx, func(text string) { line(text, nil) })
	if err != nil {
		return nil, err
	}
	defer cpu.Release()
	saved := b.snapshot()
	if saved != nil {
		defer saved.Close()
	}
	out, err := b.once(ctx, path, cpu.Number, saved)
	if refused := new(snapshotError); errors.As(err, &refused) {
		line("hitless: booting, since the saved guest does not start: "+err.Error(), nil)
		err = errors.Join(os.Remove(saved.Name()), out.Close())
		if err == nil {
			out, err = b.once(ctx, path, cpu.Number, nil)
		}
	}
	return out, err
}

// pauses says whether the guest stops itself, which it does where its clock is its own.
func (b Boot) pauses() bool { return !b.RealTime && !b.KVM }

// snapshot is the guest as it was saved by another run, or nil.
func (b Boot) snapshot() *snapshot {
	if !b.pauses() || b.Snapshots == "" {
		return nil
	}
	return openSnapshot(b.Snapshots, b.Key)
}

// once runs the guest, from the snapshot if there is one. An error after which it may be run again is a snapshotError.
func (b Boot) once(ctx context.Context, path string, cpu int, from *snapshot) (*Outcome, error) {
	own, err := cache.NewTempDir("hitless-vm-")
	if err != nil {
		return nil, err
	}
	defer own.Remove()
	out, err := mapRegion(filepath.Join(own.Path, "region"))
	if err != nil {
		return nil, err
	}
	if b.pauses() {
		err = PutPlan(out.Region, b.Base)
	} else {
		err = b.putPlan(out.Region)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	out.CPU = cpu
	args := b.commandLine(own.Path, from != nil)
	for _, a := range args {
		out.Args = append(out.Args, strings.ReplaceAll(a, own.Path+"/", ""))
	}
	return out, b.supervise(ctx, path, args, own.Path, from, out)
}

// putPlan tells the guest all that it is to do.
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

// NewOutcome makes the file the region of a guest that is still to run. The outcome owns the file, also after an error.
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

// MapRegion maps a region's file into memory, on either side.
func MapRegion(f *os.File) ([]byte, error) {
	region, err := unix.Mmap(int(f.Fd()), 0, RegionSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the region between guest and host: %w", err)
	}
	return region, nil
}

// supervise starts QEMU and waits. The goroutine keeps its thread, because QEMU inherits that thread's CPU and dies
// with it (PR_SET_PDEATHSIG).
func (b Boot) supervise(ctx context.Context, path string, args []string, dir string, from *snapshot, out *Outcome) error {
	if b.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Deadline, fmt.Errorf("the guest did not come to its end within %s of wall time", b.Deadline))
		defer cancel()
	}
	var stderr bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var m *monitor
	if b.pauses() {
		ours, theirs, err := newMonitor()
		if err != nil {
			return err
		}
		defer ours.conn.Close() // when QEMU has ended: one that closes would wake it while the guest runs
		m, cmd.ExtraFiles = ours, []*os.File{theirs}
	}
	ended := make(chan error, 1)
	begin := time.Now()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's CPU mask has changed
		err := PinThread(out.CPU)
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			orderThreads(cmd.Process.Pid)
		}
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	err := <-started
	for _, f := range cmd.ExtraFiles {
		f.Close() // or its end would never be told to ours
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", QEMU, err)
	}
	line := func(text string) {
		if b.Line != nil {
			b.Line(text, out.Region)
		}
	}
	tail := followConsole(filepath.Join(dir, "console.log"), line)
	led := b.lead(m, from, out.Region, line)
	var exit, cause error
	for over := false; !over; {
		over = true
		select {
		case exit = <-ended:
			// QEMU may end because of what it was led to, and its own words do not tell that another try would help.
			if refused := new(snapshotError); led != nil && errors.As(<-led, &refused) {
				cause = refused
			}
		case failed := <-led:
			if cause, led, over = failed, nil, failed != nil; over {
				endGuest(cmd.Process, ended)
			}
		case <-ctx.Done():
			cause = context.Cause(ctx)
			endGuest(cmd.Process, ended)
		}
	}
	out.Wall = time.Since(begin)
	if state := cmd.ProcessState; state != nil { // of after the wait, which `ended` tells of
		out.CPUTime = state.UserTime() + state.SystemTime()
	}
	out.Console = tail()
	switch {
	case cause != nil:
		return cause
	case exit != nil:
		return fmt.Errorf("%s ended with %w: %s", QEMU, exit, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// endGuest asks first and kills soon: QEMU can ignore SIGTERM for minutes while its CPU thread is busy.
func endGuest(p *os.Process, ended <-chan error) {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(time.Second):
		_ = p.Kill()
		<-ended
	}
}

// followConsole passes the console's lines on as they come. The returned function stops it after the last line and
// returns the tail. Serial output goes to a file, which cannot tell of its growth, so it is looked at four times a second.
func followConsole(file string, line func(string)) (stop func() []string) {
	quit, done := make(chan struct{}), make(chan []string)
	go func() {
		var tail []string
		var rest []byte
		var at int64
		read := func() {
			data, n := readFrom(file, at)
			at += n
			rest = append(rest, data...)
			for {
				i := bytes.IndexByte(rest, '\n')
				if i < 0 {
					return
				}
				text := strings.TrimRight(string(rest[:i]), "\r")
				rest = rest[i+1:]
				if tail = append(tail, text); len(tail) > 200 {
					tail = tail[100:]
				}
				if line != nil {
					line(text)
				}
			}
		}
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				read()
			case <-quit:
				read()
				done <- append(tail, string(rest))
				return
			}
		}
	}()
	return func() []string { close(quit); return <-done }
}

func readFrom(file string, at int64) ([]byte, int64) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0
	}
	defer f.Close()
	if _, err := f.Seek(at, 0); err != nil {
		return nil, 0
	}
	var b bytes.Buffer
	n, _ := b.ReadFrom(bufio.NewReader(f))
	return b.Bytes(), n
}

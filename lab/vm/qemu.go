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
)

// Boot says what to boot and for how long at most.
type Boot struct {
	Kernel   Kernel
	Initrd   string // from Image.Pack
	Plan     []byte
	Seed     int64
	MemoryMB int
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
func (b Boot) commandLine(dir string) []string {
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
		"random.trust_bootloader=off random.trust_cpu=off hitless.seed=" + fmt.Sprint(b.Seed)
	if !b.MemoryGroups {
		kernelArgs += " cgroup_disable=memory"
	}
	return append(args,
		"-serial", "file:"+filepath.Join(dir, "console.log"),
		"-object", fmt.Sprintf("memory-backend-file,id=region,share=on,size=%d,mem-path=%s", RegionSize, filepath.Join(dir, "region")),
		"-device", "ivshmem-plain,memdev=region",
		"-kernel", b.Kernel.Image, "-initrd", b.Initrd, "-append", kernelArgs)
}

// Run boots the guest and waits for its end: by itself, at the deadline, or when ctx is cancelled. An Outcome comes
// back with an error too, when there is a console to show. Nothing is left on the host: neither process nor file.
func Run(ctx context.Context, b Boot) (*Outcome, error) {
	path, err := exec.LookPath(QEMU)
	if err != nil {
		return nil, fmt.Errorf("booting the guest: %s is not installed; `apt-get install qemu-system-x86` brings it", QEMU)
	}
	image, err := holdImage(b.Initrd)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	own, err := newFolder()
	if err != nil {
		return nil, err
	}
	defer own.remove()
	dir := own.path
	out, err := mapRegion(filepath.Join(dir, "region"))
	if err != nil {
		return nil, err
	}
	if err := PutPlan(out.Region, b.Plan); err != nil {
		out.Close()
		return nil, err
	}
	line := func(text string) {
		if b.Line != nil {
			b.Line(text, out.Region)
		}
	}
	cpu, err := TakeCPU(ctx, line)
	if err != nil {
		out.Close()
		return nil, err
	}
	defer cpu.Release()
	out.CPU = cpu.Number
	args := b.commandLine(dir)
	for _, a := range args {
		out.Args = append(out.Args, strings.ReplaceAll(a, dir+"/", ""))
	}
	err = b.supervise(ctx, path, args, filepath.Join(dir, "console.log"), line, out)
	return out, err
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
func (b Boot) supervise(ctx context.Context, path string, args []string, console string, line func(string), out *Outcome) error {
	if b.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Deadline, fmt.Errorf("the guest did not come to its end within %s of wall time", b.Deadline))
		defer cancel()
	}
	var stderr bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	begin := time.Now()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's CPU mask has changed
		err := PinThread(out.CPU)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			orderThreads(cmd.Process.Pid)
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", QEMU, err)
	}
	tail := followConsole(console, line)
	var exit, cause error
	select {
	case exit = <-ended:
	case <-ctx.Done():
		cause = context.Cause(ctx)
		endGuest(cmd.Process, ended)
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

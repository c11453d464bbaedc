package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one call of QEMU.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan error // receives the error of QEMU's end, once
}

func newProcess(path string, args []string) *process {
	p := &process{cmd: exec.Command(path, args...), ended: make(chan error, 1)}
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = qemuAttributes()
	return p
}

// start starts QEMU on a CPU and closes our copies of the files that QEMU inherits. With m, a monitor or nil, the guest's threads wait
// for it. The goroutine keeps its thread, because QEMU inherits the thread's CPU affinity and dies with the thread (PR_SET_PDEATHSIG).
func (p *process) start(cpu int, m *monitor) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's CPU mask has changed
		err := p.startHere(cpu, m)
		started <- err
		if err == nil {
			p.ended <- p.cmd.Wait()
		}
	}()
	err := <-started
	for _, f := range p.cmd.ExtraFiles {
		f.Close() // otherwise our end never sees QEMU close its own; and a tap ends with QEMU
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", QEMU, err)
	}
	return nil
}

// startHere starts QEMU from this thread.
func (p *process) startHere(cpu int, m *monitor) error {
	if cpu == AnyCPU {
		return p.cmd.Start()
	}
	if err := PinThread(cpu); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	of := threadsOf(p.cmd.Process.Pid)
	if m == nil {
		of.order() // the guest runs at once
		return nil
	}
	of.level()
	m.threads = of
	return nil
}

// wait waits for QEMU's end. A restore that fails and the end of ctx end QEMU too, and are the cause then.
func (p *process) wait(ctx context.Context, resumed <-chan error) (exit, cause error) {
	for {
		select {
		case exit = <-p.ended:
			// A failed restore also ends QEMU; its own error would not show that a boot may succeed.
			if refused := new(snapshotError); resumed != nil && errors.As(<-resumed, &refused) {
				cause = refused
			}
			return exit, cause
		case failed := <-resumed:
			if failed == nil {
				resumed = nil
				continue
			}
			p.end()
			return nil, failed
		case <-ctx.Done():
			p.end()
			return nil, context.Cause(ctx)
		}
	}
}

// end sends SIGTERM and soon SIGKILL: QEMU can ignore SIGTERM for minutes while its CPU thread is busy.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

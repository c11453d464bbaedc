//go:build !portable

package probes

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/epoll"
)

// poller waits for sockets, for a time, and for wake-ups by other goroutines, all in one epoll instance. The time comes from a timerfd:
// the runtime's timers are rounded to milliseconds when idle (netpoll's epoll_wait), and a timerfd has neither rounding nor timer slack
// (timerfd_create(2), prctl(2) PR_SET_TIMERSLACK).
type poller struct {
	clock  *clock
	set    *epoll.Set
	timer  int
	event  int // eventfd of wake
	armed  time.Duration
	spec   unix.ItimerSpec
	events [32]socketEvent
}

// socketEvent reports changes of a socket: Events are the bits below, Fd is its token, Pad its generation.
type socketEvent = epoll.Event

const (
	eventIn    = unix.EPOLLIN
	eventOut   = unix.EPOLLOUT
	eventError = unix.EPOLLERR | unix.EPOLLHUP
	eventEnd   = unix.EPOLLRDHUP
)

func newPoller(c *clock) (*poller, error) {
	p := &poller{clock: c, timer: -1, event: -1, armed: disarmed}
	if err := p.open(); err != nil {
		p.close()
		return nil, fmt.Errorf("making the probe engine's poller: %w", err)
	}
	return p, nil
}

func (p *poller) open() (err error) {
	if p.set, err = epoll.Open(); err != nil {
		return err
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	if p.event, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	if errno := p.watch(p.timer, tokenTimer, 0); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	if errno := p.watch(p.event, tokenWake, 0); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// watch reports every change of fd once (edge triggered), with the token and the generation.
func (p *poller) watch(fd int, token, generation int32) syscall.Errno {
	return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP, token, generation)
}

// watchInput is watch without events of writable sockets, for UDP.
func (p *poller) watchInput(fd int, token, generation int32) syscall.Errno {
	return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, token, generation)
}

// setToken changes the token of a watched socket; pending events are reported again.
func (p *poller) setToken(fd int, token, generation int32) syscall.Errno {
	return p.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN|unix.EPOLLRDHUP, token, generation)
}

func (p *poller) control(how, fd int, edges uint32, token, generation int32) syscall.Errno {
	return p.set.Control(how, fd, edges, token, generation)
}

func (p *poller) now() time.Duration { return p.clock.Now() }

// wait returns the events up to the time until, possibly none; a wake-up may end it earlier. The second result is false
// when the batch was full, so that more events may be pending.
func (p *poller) wait(until time.Duration) ([]socketEvent, bool, error) {
	if err := p.arm(until); err != nil {
		return nil, false, err
	}
	n, err := p.set.Wait(p.events[:])
	if err != nil {
		return nil, false, fmt.Errorf("waiting for the probe engine's sockets: %w", err)
	}
	for i := range p.events[:n] {
		if p.events[i].Fd == tokenTimer {
			// The timer must be armed again even for the same time: this clock may be a few nanoseconds behind.
			p.armed = disarmed
		}
	}
	return p.events[:n], n < len(p.events), nil
}

// arm sets the timer. Each expiry is an edge, so the timer is never read.
func (p *poller) arm(until time.Duration) error {
	if until == p.armed {
		return nil
	}
	p.armed = until
	p.spec.Value = unix.Timespec{} // disarms
	if until != never {
		// A past time expires at once; 0 would disarm.
		p.spec.Value = unix.NsecToTimespec(max(1, int64(until)+p.clock.base))
	}
	if errno := sysTimerSet(p.timer, &p.spec); errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}

// wake makes wait return soon. It is safe for concurrent use until close.
func (p *poller) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(p.event, one[:]) // fails only when 2^64-2 wake-ups are pending
}

func (p *poller) close() {
	for _, fd := range []int{p.timer, p.event} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if p.set != nil {
		_ = p.set.Close()
	}
}

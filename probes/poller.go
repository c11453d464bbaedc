package probes

import (
	"fmt"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits, in one place, for sockets, for an instant, and for a wake-up by another goroutine.
//
// It is an epoll instance of its own that the Go runtime's poller watches in turn. A thread that blocked in epoll_wait
// itself would look to the runtime like one stuck in a system call, and its monitor thread would wake up dozens of times
// after each attempt to look at it; idle virtual time is paid by the wake-up. The instant comes from a timerfd, since
// the runtime's own timers wait in whole milliseconds when all is idle (netpoll's epoll_wait), and a timerfd has neither
// that rounding nor timer slack (timerfd_create(2), prctl(2) PR_SET_TIMERSLACK).
type poller struct {
	clock  *clock
	file   *os.File // the epoll instance
	conn   syscall.RawConn
	epoll  int
	timer  int
	event  int // eventfd of wake
	armed  time.Duration
	spec   unix.ItimerSpec
	added  unix.EpollEvent
	events [32]unix.EpollEvent
	n      int
	errno  unix.Errno
}

// The tokens of the poller's own descriptors; all others are the flights'.
const (
	tokenTimer = -1 - iota
	tokenWake
)

// disarmed is no instant that anyone waits for.
const disarmed = time.Duration(math.MinInt64)

func newPoller(c *clock) (*poller, error) {
	p := &poller{clock: c, epoll: -1, timer: -1, event: -1, armed: disarmed}
	if err := p.open(); err != nil {
		p.close()
		return nil, fmt.Errorf("making the probe engine's poller: %w", err)
	}
	return p, nil
}

func (p *poller) open() (err error) {
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(p.epoll, true); err != nil { // tells os.NewFile that it may be watched
		return os.NewSyscallError("fcntl", err)
	}
	p.file = os.NewFile(uintptr(p.epoll), "probe engine")
	if p.conn, err = p.file.SyscallConn(); err != nil {
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

// watch reports every change of fd from now on, once each (edge triggered), with the two numbers as its name.
func (p *poller) watch(fd int, token, generation int32) unix.Errno {
	return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP, token, generation)
}

// watchInput is watch for sockets that can always be written to, whose room to write is no news.
func (p *poller) watchInput(fd int, token, generation int32) unix.Errno {
	return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, token, generation)
}

// rename gives a watched socket another name; what is true of it at this moment is reported again.
func (p *poller) setToken(fd int, token, generation int32) unix.Errno {
	return p.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN|unix.EPOLLRDHUP, token, generation)
}

func (p *poller) control(how, fd int, edges uint32, token, generation int32) unix.Errno {
	p.added = unix.EpollEvent{Events: edges | unix.EPOLLET&0xffffffff, Fd: token, Pad: generation}
	return sysEpollControl(p.epoll, how, fd, &p.added)
}

func (p *poller) now() time.Duration { return p.clock.Now() }

// wait returns the changes that it was told to watch for, with none at the instant until (a wake-up may come earlier).
// A full batch means that there may be more; less means that everything was seen.
func (p *poller) wait(until time.Duration) ([]unix.EpollEvent, bool, error) {
	if err := p.arm(until); err != nil {
		return nil, false, err
	}
	if err := p.conn.Read(p.poll); err != nil {
		return nil, false, fmt.Errorf("waiting for the probe engine's sockets: %w", err)
	}
	if p.errno != 0 {
		return nil, false, fmt.Errorf("waiting for the probe engine's sockets: %w", p.errno)
	}
	for i := range p.events[:p.n] {
		if p.events[i].Fd == tokenTimer {
			// Arm again even for the same instant: our clock may read a few nanoseconds less than the timer's.
			p.armed = disarmed
		}
	}
	return p.events[:p.n], p.n < len(p.events), nil
}

// poll asks the epoll instance without blocking; false makes the runtime wait for it and ask again.
func (p *poller) poll(fd uintptr) bool {
	p.n, p.errno = sysEpollPoll(int(fd), p.events[:])
	return p.n > 0 || p.errno != 0
}

// arm sets the timer. Its expiry is an edge each time, so it is never read.
func (p *poller) arm(until time.Duration) error {
	if until == p.armed {
		return nil
	}
	p.armed = until
	p.spec.Value = unix.Timespec{} // disarms
	if until != never {
		// An instant that has passed expires at once; one nanosecond is the earliest that does not disarm.
		p.spec.Value = unix.NsecToTimespec(max(1, int64(until)+p.clock.base))
	}
	if errno := sysTimerSet(p.timer, &p.spec); errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}

// wake makes wait return soon. It may be called from any goroutine until close.
func (p *poller) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(p.event, one[:]) // fails only when 2^64-2 wake-ups are pending: then one is
}

func (p *poller) close() {
	for _, fd := range []int{p.timer, p.event} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if p.file != nil {
		_ = p.file.Close()
	}
}

// clock maps Go's monotonic time to offsets from the start of the run.
type clock struct {
	base   int64 // CLOCK_MONOTONIC nanoseconds of the run's start
	offset time.Duration
	anchor time.Time
}

// newClock reads CLOCK_MONOTONIC between two readings of Go's clock, which counts the same nanoseconds from another
// zero, several times, and keeps the narrowest pair: the mapping is right to a fraction of a microsecond.
func newClock(base int64) (*clock, error) {
	c := &clock{base: base}
	narrowest := never
	for range 5 {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return nil, fmt.Errorf("reading CLOCK_MONOTONIC: %w", err)
		}
		if width := time.Since(before); width < narrowest {
			narrowest = width
			c.anchor, c.offset = before.Add(width/2), time.Duration(ts.Nano()-base)
		}
	}
	return c, nil
}

// Now returns the offset of this instant from the start of the run.
func (c *clock) Now() time.Duration { return c.offset + time.Since(c.anchor) }

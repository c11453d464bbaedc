//go:build unix && (!linux || portable)

package probes

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits for sockets, for a time, and for wake-ups, with what every Unix has: the Go runtime's own poller, and poll(2). It costs a
// goroutine or two for each socket. The tag `portable` selects it on Linux, where tests then compare its outcomes with those of epoll.
type poller struct {
	clock   *clock
	changed chan struct{} // has a value while pending is not empty, or after a wake-up
	timer   *time.Timer

	mu      sync.Mutex
	pending []socketEvent
	sockets map[int]*watched
	events  []socketEvent // the batch that wait returned last
}

// socketEvent reports changes of a socket: Events are the bits below, Fd is its token, Pad its generation.
type socketEvent struct {
	Events  uint32
	Fd, Pad int32
}

const (
	eventIn    = unix.POLLIN
	eventOut   = unix.POLLOUT
	eventError = unix.POLLERR | unix.POLLHUP
	eventEnd   = 0 // a FIN makes the socket readable
)

// watched is a socket whose changes are reported, or whose answers are held back.
type watched struct {
	file              *os.File
	token, generation int32
	held              time.Duration // no change is reported before this time
}

func newPoller(c *clock) (*poller, error) {
	p := &poller{clock: c, changed: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), sockets: map[int]*watched{}}
	p.timer.Stop()
	return p, nil
}

// watch reports every change of fd once, with the token and the generation. The socket belongs to the poller then: forget closes it.
func (p *poller) watch(fd int, token, generation int32) syscall.Errno {
	return p.control(fd, token, generation, true)
}

// watchInput is watch without events of writable sockets, for UDP.
func (p *poller) watchInput(fd int, token, generation int32) syscall.Errno {
	return p.control(fd, token, generation, false)
}

func (p *poller) control(fd int, token, generation int32, output bool) syscall.Errno {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.socket(fd)
	w.token, w.generation, w.file = token, generation, os.NewFile(uintptr(fd), "attempt")
	conn, err := w.file.SyscallConn()
	if err != nil {
		return syscall.EINVAL
	}
	go func() { p.follow(w, conn.Read) }()
	if output {
		go func() { p.follow(w, conn.Write) }()
	}
	return 0
}

// socket returns what is known of a descriptor. The caller holds mu.
func (p *poller) socket(fd int) *watched {
	w := p.sockets[fd]
	if w == nil {
		w = &watched{}
		p.sockets[fd] = w
	}
	return w
}

// follow reports the socket's state after each change of one direction, until it is closed. wait calls a function again after each
// change for as long as it returns false.
func (p *poller) follow(w *watched, wait func(func(uintptr) bool) error) {
	_ = wait(func(fd uintptr) bool { // the error says that the file was closed
		p.report(w, int(fd))
		return false
	})
}

// report queues the socket's state, now or when it is no longer held. For a descriptor that was closed meanwhile it does nothing.
func (p *poller) report(w *watched, fd int) {
	state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT}}
	if n, err := unix.Poll(state, 0); err != nil || n == 0 {
		return // a change that is over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sockets[fd] != w {
		return // closed meanwhile
	}
	if w.held == never {
		return
	}
	if wait := w.held - p.clock.Now(); wait > 0 {
		time.AfterFunc(wait, func() { p.report(w, fd) })
		return
	}
	events := uint32(state[0].Revents)
	if events&eventOut != 0 {
		events |= eventError // on some systems a failed handshake shows by a writable socket alone: the reader asks for the error
	}
	p.pending = append(p.pending, socketEvent{Events: events, Fd: w.token, Pad: w.generation})
	p.wake()
}

// setToken changes the token of a watched socket; pending events are reported again.
func (p *poller) setToken(fd int, token, generation int32) syscall.Errno {
	p.mu.Lock()
	w := p.sockets[fd]
	if w == nil || w.file == nil {
		p.mu.Unlock()
		return syscall.EBADF
	}
	w.token, w.generation = token, generation
	p.mu.Unlock()
	p.report(w, fd)
	return 0
}

// hold reports no change of the socket before the time until.
func (p *poller) hold(fd int, until time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.socket(fd).held = until
}

// forget ends the reports about a descriptor and closes it. Events that wait has not returned are dropped, as those of epoll are: their
// receiver would read a descriptor that is closed, or belongs to another attempt.
func (p *poller) forget(fd int) {
	p.mu.Lock()
	w := p.sockets[fd]
	delete(p.sockets, fd)
	if w != nil {
		p.pending = slices.DeleteFunc(p.pending, func(e socketEvent) bool { return e.Fd == w.token && e.Pad == w.generation })
	}
	p.mu.Unlock()
	if w != nil && w.file != nil {
		_ = w.file.Close() // closes the descriptor even with an error
		return
	}
	_ = unix.Close(fd)
}

func (p *poller) now() time.Duration { return p.clock.Now() }

// wait returns the events up to the time until, possibly none; a wake-up may end it earlier. All events are returned.
func (p *poller) wait(until time.Duration) ([]socketEvent, bool, error) {
	if until == never {
		<-p.changed
	} else {
		p.timer.Reset(until - p.clock.Now())
		select {
		case <-p.changed:
		case <-p.timer.C:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events, p.pending = p.pending, p.events[:0]
	return p.events, true, nil
}

// wake makes wait return soon. It is safe for concurrent use.
func (p *poller) wake() {
	select {
	case p.changed <- struct{}{}:
	default: // it will return anyway
	}
}

// close closes the sockets that are left.
func (p *poller) close() {
	p.mu.Lock()
	var left []int
	for fd := range p.sockets {
		left = append(left, fd)
	}
	p.mu.Unlock()
	for _, fd := range left {
		p.forget(fd)
	}
	p.timer.Stop()
}

//go:build linux

// Package epoll waits for many sockets with little work for an emulated CPU. Nothing in it wakes the Go runtime's monitor thread
// (sysmon): the ordinary wrappers of system calls do (reentersyscall() in runtime/proc.go), and it then checks the process every 20 us
// while it is busy. Each wake-up costs real time in a VM.
package epoll

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Event reports changes of a socket. Fd and Pad are the two numbers that Control got.
type Event = unix.EpollEvent

// Set is an epoll instance, which the Go runtime's poller watches in turn. A thread blocked in epoll_wait would look like one in a system
// call. All methods but Close are for one goroutine.
type Set struct {
	file   *os.File
	conn   syscall.RawConn
	fd     int
	events []Event
	n      int
	errno  syscall.Errno
	added  Event
}

// Open returns a set without sockets. Its caller closes it.
func Open() (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // required by os.NewFile for polling
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &Set{file: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if s.conn, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("watching an epoll instance: %w", err), s.file.Close())
	}
	return s, nil
}

// Close ends the set, and a Wait of another goroutine with os.ErrClosed.
func (s *Set) Close() error { return s.file.Close() }

// Control is epoll_ctl(2) with how, such as unix.EPOLL_CTL_ADD. Each change is reported once (edge triggered), with both numbers.
func (s *Set) Control(how, fd int, edges uint32, token, generation int32) syscall.Errno {
	s.added = Event{Events: edges | unix.EPOLLET&0xffffffff, Fd: token, Pad: generation}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(s.fd), uintptr(how), uintptr(fd), uintptr(unsafe.Pointer(&s.added)), 0, 0)
	return errno
}

// Wait fills events and returns their number, at least 1.
func (s *Set) Wait(events []Event) (int, error) {
	s.events = events
	if err := s.conn.Read(s.poll); err != nil {
		return 0, err
	}
	if s.errno != 0 {
		return 0, s.errno
	}
	return s.n, nil
}

// poll reads pending events without blocking; false makes the runtime wait and call it again. (epoll_pwait without a mask is epoll_wait,
// and exists on every architecture.)
func (s *Set) poll(fd uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(unsafe.SliceData(s.events))), uintptr(len(s.events)), 0, 0, 0)
	s.n, s.errno = int(n), errno
	return s.n > 0 || s.errno != 0
}

// CloseSocket closes the descriptor, which Linux does even when close(2) returns an error.
func CloseSocket(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

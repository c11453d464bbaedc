//go:build !unix

package probes

import (
	"errors"
	"net/netip"
	"runtime"
	"syscall"
	"time"
)

// ErrUnmeasured is why this platform makes no attempts. Windows answers a refusal by sending its SYN again, so that a refused connection
// looks like a slow or a lost one.
var ErrUnmeasured = errors.New("measuring connections needs Linux or macOS: " + runtime.GOOS + " hides refused connections; use WSL or a pod (--in-cluster)")

// Monotonic fails here.
func Monotonic() (int64, error) { return 0, ErrUnmeasured }

// Unseen says that no attempt can be made.
const Unseen = "no attempts"

// KernelRelease fails here.
func KernelRelease() (string, error) { return "", ErrUnmeasured }

func openFiles() (int, error) { return 0, ErrUnmeasured }

func errnoName(syscall.Errno) string { return "unknown errno" }

// socketEvent, poller and sockets have no instances here, since Monotonic fails before.
type socketEvent struct {
	Events  uint32
	Fd, Pad int32
}

const (
	eventIn = 1 << iota
	eventOut
	eventError
	eventEnd
)

type poller struct{ clock *clock }

func newPoller(*clock) (*poller, error) { return nil, ErrUnmeasured }

func (*poller) watch(int, int32, int32) syscall.Errno           { return syscall.ENOTSUP }
func (*poller) watchInput(int, int32, int32) syscall.Errno      { return syscall.ENOTSUP }
func (*poller) setToken(int, int32, int32) syscall.Errno        { return syscall.ENOTSUP }
func (p *poller) now() time.Duration                            { return p.clock.Now() }
func (*poller) wait(time.Duration) ([]socketEvent, bool, error) { return nil, false, ErrUnmeasured }
func (*poller) wake()                                           {}
func (*poller) close()                                          {}

type sockets struct{}

func newSockets(*poller) *sockets { return &sockets{} }

func (*sockets) open(int, netip.AddrPort, netip.AddrPort, bool) (int, syscall.Errno) {
	return -1, syscall.ENOTSUP
}
func (*sockets) connect(int, netip.AddrPort) syscall.Errno           { return syscall.ENOTSUP }
func (*sockets) disableErrorQueue(int, netip.AddrPort) syscall.Errno { return syscall.ENOTSUP }
func (*sockets) retransmits(int, time.Duration) uint8                { return 0 }
func (*sockets) local(int) netip.AddrPort                            { return netip.AddrPort{} }
func (*sockets) handshakeError(int) (syscall.Errno, icmp)            { return syscall.ENOTSUP, icmp{} }
func (*sockets) nextError(int, []byte) ([]byte, icmp, bool)          { return nil, icmp{}, false }
func (*sockets) read(int, []byte) (int, syscall.Errno)               { return 0, syscall.ENOTSUP }
func (*sockets) write(int, []byte) (int, syscall.Errno)              { return 0, syscall.ENOTSUP }
func (*sockets) dropPackets(*flight) syscall.Errno                   { return syscall.ENOTSUP }
func (*sockets) acceptPackets(int)                                   {}
func (*sockets) close(int, bool)                                     {}

//go:build netns

package linux

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// SCTP through IPVS. Go's net package has no SCTP, so the test uses raw system calls.
func TestSCTP(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	pod := netip.MustParseAddrPort(serverAddr + ":3868")
	at := kernel.Key{Addr: vip.Addr, Protocol: kernel.SCTP, Port: 3868}
	listening := make(chan error)
	go inNetns(t, r.server, func() { listening <- listenSCTP(pod) })
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Masquerade, Key: at}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: at, Scheduler: "rr"}},
		kernel.AddReal{Key: at, Real: pod, Weight: 1}, kernel.Bind{Addr: at.Addr})
	answered := make(chan error)
	go inNetns(t, r.client, func() { answered <- dialSCTP(netip.AddrPortFrom(at.Addr, at.Port)) })
	if err := <-answered; err != nil {
		t.Errorf("through IPVS: %v", err)
	}
	apply(t, k, kernel.DeleteReal{Key: at, Real: pod})
	if s, _, err := k.Server(at); err != nil || len(s.Reals) != 0 {
		t.Errorf("after its only real server was deleted: %+v, error %v", s, err)
	}
}

func sctpSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}) // also bounds connect
	}
	return fd, err
}

func listenSCTP(at netip.AddrPort) error {
	fd, err := sctpSocket()
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err == nil {
		err = unix.Listen(fd, 8)
	}
	return err // the socket stays open until the test process ends
}

func dialSCTP(to netip.AddrPort) error {
	fd, err := sctpSocket()
	if err != nil {
		return err
	}
	return errors.Join(unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}), unix.Close(fd))
}

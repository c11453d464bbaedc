//go:build linux

package host

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/lab/vm"
)

// Outside is a network namespace of this machine, which a tap connects to a lab in a VM. The lab takes its programs for its client. It ends
// with this process, also after kill -9.
type Outside struct {
	Tap       *os.File // of the VM
	Namespace *os.File

	control *os.File // its process ends with it
	ended   <-chan error
}

// The descriptors of the namespace's process.
const (
	outsideListener = 3 + iota
	outsideControl
)

// NewOutside makes the namespace. The program, called with args, must call OutsideMain. api is a TCP socket that listens on this machine's
// loopback: see Serve.
func NewOutside(program string, args []string, api *os.File) (*Outside, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making the socket to the lab's client: %w", err)
	}
	o, theirs := &Outside{control: os.NewFile(uintptr(ends[0]), "client")}, os.NewFile(uintptr(ends[1]), "hitless")
	defer theirs.Close()
	said := &console{}
	_, o.ended, err = isolated(vm.AnyCPU, unix.CLONE_NEWNET, func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, []*os.File{api, theirs}
		return cmd
	})
	if err != nil {
		return nil, errors.Join(err, o.control.Close())
	}
	theirs.Close() // so that the end of the process is seen
	received, err := receiveFiles(o.control, 2)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("connecting a network namespace to the VM: %s: %w", strings.Join(said.close(), "; "), err)
	}
	o.Tap, o.Namespace = received[0], received[1]
	return o, nil
}

// Serve forwards the connections to the API listener from now on, over the tap. The namespace has the same listener on its own loopback.
func (o *Outside) Serve(address string) error {
	if err := unix.Send(int(o.control.Fd()), []byte(address), 0); err != nil {
		return fmt.Errorf("telling the lab's client the address of the API: %w", err)
	}
	return nil
}

// Close ends the namespace's process. The namespace ends with its last program.
func (o *Outside) Close() {
	o.control.Close()
	<-o.ended
	for _, f := range []*os.File{o.Tap, o.Namespace} {
		if f != nil {
			f.Close()
		}
	}
}

// OutsideMain is the process of the namespace: it makes the tap, and forwards connections to the API until NewOutside's caller ends.
func OutsideMain() error {
	listener, err := net.FileListener(os.NewFile(outsideListener, "API listener"))
	if err != nil {
		return fmt.Errorf("opening the listener for the API: %w", err)
	}
	control := os.NewFile(outsideControl, "hitless")
	tap, err := makeTap()
	if err != nil {
		return err
	}
	within, err := net.Listen("tcp", listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listening for programs of the namespace: %w", err)
	}
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("opening the namespace: %w", err)
	}
	if err := unix.Sendmsg(outsideControl, []byte{1}, unix.UnixRights(int(tap.Fd()), int(own.Fd())), nil, 0); err != nil {
		return fmt.Errorf("passing the namespace on: %w", err)
	}
	tap.Close() // it ends with the VM
	server := make([]byte, 256)
	for {
		n, err := control.Read(server)
		if err != nil {
			return nil // the caller has ended
		}
		for _, from := range []net.Listener{listener, within} {
			go Forward(from, string(server[:n]))
		}
	}
}

// makeTap makes the namespace's link to the VM, which is its way to all other networks.
func makeTap() (*os.File, error) {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "lab"}, Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_TUN_EXCL}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, fmt.Errorf("making a tap for the VM: %w; it needs the device /dev/net/tun, which `modprobe tun` makes, and the right to open it", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err == nil {
		err = netlink.AddrAdd(tap, &netlink.Addr{IPNet: &net.IPNet{IP: topology.Outside.Addr().AsSlice(), Mask: net.CIDRMask(topology.Outside.Bits(), 32)}})
	}
	if err == nil {
		err = netlink.LinkSetUp(tap)
	}
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{Gw: topology.OutsideGateway.Addr().AsSlice()})
	}
	if err != nil {
		return nil, fmt.Errorf("connecting the tap: %w", err)
	}
	return tap.Fds[0], nil
}

// receiveFiles receives n files over a socket.
func receiveFiles(from *os.File, n int) (files []*os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(4*n))
	var m int
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		_, m, _, _, err = unix.Recvmsg(int(from.Fd()), make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "passed"))
	}
	if err == nil && len(files) != n {
		err = io.ErrUnexpectedEOF
	}
	return files, err
}

// Forward forwards the listener's connections to the address until the listener is closed.
func Forward(from net.Listener, to string) {
	for {
		in, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return // the client sees a closed connection
			}
			defer out.Close()
			var both sync.WaitGroup
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				both.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].(*net.TCPConn).CloseWrite() // the other direction may continue
				})
			}
			both.Wait()
		}()
	}
}

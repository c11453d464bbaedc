//go:build linux

package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// arpWait is how long answers to an ARP request are awaited. Kernels answer within a millisecond.
const arpWait = 200 * time.Millisecond

// FabricInterface is the load balancer's interface to the nodes; all others lead to clients.
const FabricInterface = "eth0"

// AnswersARP returns the nodes that answer an ARP request of the load balancer for an address, sorted by name. A host on the
// nodes' network sends packets for the address to the one whose answer it takes. The address is of IPv4, as the lab must be.
func (n *Network) AnswersARP(ctx context.Context, addr netip.Addr) (nodes []string, err error) {
	var socket *arpSocket
	if err := n.Balancer.Do(func() (err error) { socket, err = openARP(FabricInterface); return err }); err != nil {
		return nil, fmt.Errorf("opening a socket for ARP in the load balancer's namespace: %w", err)
	}
	defer socket.file.Close()
	answers, err := socket.ask(ctx, addr)
	if err != nil {
		return nil, err
	}
	for _, node := range n.Nodes {
		own, err := socket.ask(ctx, node.Addr)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(own, func(mac string) bool { return slices.Contains(answers, mac) }) {
			nodes = append(nodes, node.Name)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// arpSocket sends and receives ARP packets on one interface.
type arpSocket struct {
	file *os.File
	mac  net.HardwareAddr
	addr netip.Addr
}

// openARP opens a socket in the network namespace of this thread.
func openARP(name string) (*arpSocket, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	addrs, err := link.Addrs()
	if err != nil {
		return nil, err
	}
	s := &arpSocket{mac: link.HardwareAddr}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !s.addr.IsValid() {
			s.addr = p.Addr()
		}
	}
	if !s.addr.IsValid() {
		return nil, fmt.Errorf("%s has no IPv4 address", name)
	}
	const arp = unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, arp)
	if err != nil {
		return nil, err
	}
	s.file = os.NewFile(uintptr(fd), "arp")
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: arp, Ifindex: link.Index}); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// ask returns the MAC addresses from which a request for an address is answered.
func (s *arpSocket) ask(ctx context.Context, addr netip.Addr) (macs []string, err error) {
	if err := s.request(addr); err != nil {
		return nil, fmt.Errorf("sending an ARP request for %s: %w", addr, err)
	}
	if err := s.file.SetReadDeadline(time.Now().Add(arpWait)); err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		var frame [1500]byte
		n, err := s.file.Read(frame[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return macs, nil
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("reading ARP answers for %s: %w", addr, err)
		}
		packet := gopacket.NewPacket(frame[:n], layers.LayerTypeEthernet, gopacket.Default)
		answer, is := packet.Layer(layers.LayerTypeARP).(*layers.ARP)
		if !is || answer.Operation != layers.ARPReply || !bytes.Equal(answer.SourceProtAddress, addr.AsSlice()) {
			continue
		}
		if mac := net.HardwareAddr(answer.SourceHwAddress).String(); !slices.Contains(macs, mac) {
			macs = append(macs, mac)
		}
	}
	return nil, context.Cause(ctx)
}

func (s *arpSocket) request(addr netip.Addr) error {
	everyone := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	frame := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(frame, gopacket.SerializeOptions{},
		&layers.Ethernet{SrcMAC: s.mac, DstMAC: everyone, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
			SourceHwAddress: s.mac, SourceProtAddress: s.addr.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: addr.AsSlice()})
	if err != nil {
		return err
	}
	_, err = s.file.Write(frame.Bytes())
	return err
}

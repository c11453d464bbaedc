//go:build linux

package topology

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// HostPort is a port of a node that leads to a port of a pod.
type HostPort struct {
	Addr     netip.Addr // of the node; invalid for all of them
	Protocol uint8      // as unix.IPPROTO_TCP
	Port     uint16
	To       netip.AddrPort // of the pod
}

// hostPorts are the ports of a node, which are in a table of its kernel.
type hostPorts struct {
	mu  sync.Mutex
	all []HostPort
}

// AddHostPorts makes ports of the node lead to pods. It serves the primary family, and IPv4 only.
func (n *Node) AddHostPorts(ports ...HostPort) error {
	n.ports.mu.Lock()
	defer n.ports.mu.Unlock()
	return n.writeHostPorts(append(slices.Clone(n.ports.all), ports...))
}

// RemoveHostPorts removes the ports that lead to a pod.
func (n *Node) RemoveHostPorts(pod netip.Addr) error {
	n.ports.mu.Lock()
	defer n.ports.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(n.ports.all), func(p HostPort) bool { return p.To.Addr() == pod })
	if len(rest) == len(n.ports.all) {
		return nil
	}
	return n.writeHostPorts(rest)
}

// writeHostPorts replaces the table. The caller has the lock.
func (n *Node) writeHostPorts(all []HostPort) error {
	conn, err := nftables.New(nftables.WithNetNSFd(n.Fd()))
	if err != nil {
		return fmt.Errorf("opening the tables of %s: %w", n.Name, err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "hitless-hostports"}
	conn.AddTable(table) // so that it exists when it is deleted
	conn.DelTable(table)
	if len(all) > 0 {
		conn.AddTable(table)
		chain := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
			return conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
		}
		early := nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest - 10) // before proxies, as the portmap plugin of clusters
		in, out := chain("in", nftables.ChainHookPrerouting, early), chain("out", nftables.ChainHookOutput, early)
		after := chain("after", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
		for _, p := range all {
			for _, c := range []*nftables.Chain{in, out} {
				conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: p.translate()})
			}
			for _, from := range []netip.Prefix{netip.PrefixFrom(p.To.Addr(), 32), netip.MustParsePrefix("127.0.0.0/8")} {
				conn.AddRule(&nftables.Rule{Table: table, Chain: after, Exprs: p.masquerade(from)})
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("writing the host ports of %s: %w", n.Name, err)
	}
	n.ports.all = all
	// Packets from the node's loopback leave it.
	return n.Do(func() error { return sysctls("net/ipv4/conf/pods/route_localnet=1") })
}

// Where addresses and ports are in the headers of IPv4, TCP, UDP and SCTP.
const (
	sourceOffset, destinationOffset, addressLen = 12, 16, 4
	portOffset, portLen                         = 2, 2
)

func equal(load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

func address(offset uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressLen}
}

// port matches the protocol and the destination port.
func (p HostPort) port(number uint16) []expr.Any {
	return slices.Concat(
		equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{p.Protocol}),
		equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: portOffset, Len: portLen}, binary.BigEndian.AppendUint16(nil, number)))
}

// translate sends what is for the port to the pod.
func (p HostPort) translate() []expr.Any {
	to := equal(&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
	if p.Addr.IsValid() && !p.Addr.IsUnspecified() {
		to = equal(address(destinationOffset), p.Addr.AsSlice())
	}
	return slices.Concat(to, p.port(p.Port), []expr.Any{
		&expr.Immediate{Register: 1, Data: p.To.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, p.To.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
	})
}

// masquerade makes the node the source of what comes from addresses to which the pod cannot answer through it.
func (p HostPort) masquerade(from netip.Prefix) []expr.Any {
	mask := make([]byte, addressLen)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-from.Bits()))
	return slices.Concat(equal(address(destinationOffset), p.To.Addr().AsSlice()), p.port(p.To.Port()), []expr.Any{
		address(sourceOffset),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: addressLen, Mask: mask, Xor: make([]byte, addressLen)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.Masked().Addr().AsSlice()},
		&expr.Masq{},
	})
}

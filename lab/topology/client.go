//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// clientSysctls give a client more ephemeral ports than the default, without the NodePort range.
var clientSysctls = []string{"net/ipv4/ip_local_port_range=1024 65535", "net/ipv4/ip_local_reserved_ports=30000-32767"}

// AddClientPod creates the network namespace of a client pod on the node, without a Pod object. The pod has its own
// veth pair instead of a port of the pod bridge: on the bridge, replies of neighbours would bypass the node, which
// has to translate them back.
func (n *Network) AddClientPod(node *Node) (*Namespace, error) {
	const link = "clientpod"
	n.pacer.Await()
	ns, err := newNamespace("client-pod", n.plans)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		node.Do(func() error {
			return errors.Join(connect(link, "eth0", ns), netlinkUp(link, each(n.plans, Addresses.clientPodGatewayLink)...),
				sysctls("net/ipv4/conf/"+link+"/rp_filter=0", "net/ipv4/conf/"+link+"/send_redirects=0"))
		}),
		ns.Do(func() error {
			return errors.Join(netlinkUp("lo"), netlinkUp("eth0", each(n.plans, Addresses.clientPodLink)...),
				defaultRoutes(addrsOf(each(n.plans, Addresses.clientPodGatewayLink))), sysctls(clientSysctls...))
		}))
	for _, p := range n.plans {
		err = errors.Join(err, n.RouteTo(p.clientPods, node))
	}
	if err != nil {
		_ = ns.Close() // err is the error to report
		return nil, fmt.Errorf("connecting the client pod on %s: %w", node.Name, err)
	}
	return ns, nil
}

// PrepareClient sets the sysctls of a node on which a client runs.
func (n *Node) PrepareClient() error {
	if err := n.Do(func() error { return sysctls(clientSysctls...) }); err != nil {
		return fmt.Errorf("preparing %s for a client: %w", n.Name, err)
	}
	return nil
}

// RouteTo adds a route to the prefix via the node on all other nodes, the load balancer and the control plane. The
// caller must be in the network namespace of the fabric.
func (n *Network) RouteTo(to netip.Prefix, node *Node) error {
	via := func() error { return addRoute(to, node.AddrOf(record.FamilyOf(to.Addr()))) }
	err := errors.Join(via(), n.Balancer.Do(via))
	for _, other := range n.Nodes {
		if other != node {
			err = errors.Join(err, other.Do(via))
		}
	}
	return err
}

// ConnectOutside gives the client a link of the caller's network namespace, and lets what is behind the link be the client: its packets
// have the client's address. The network must have IPv4.
func (n *Network) ConnectOutside(link string) error {
	const inside = "outside"
	device, err := netlink.LinkByName(link)
	if err == nil {
		err = netlink.LinkSetDown(device) // Linux before 6.2 renames no other link
	}
	if err == nil {
		err = netlink.LinkSetName(device, inside)
	}
	if err == nil {
		err = netlink.LinkSetNsFd(device, n.Client.Fd())
	}
	if err == nil {
		err = n.Client.Do(func() error {
			return errors.Join(netlinkUp(inside, OutsideGateway), sysctls("net/ipv4/ip_forward=1", "net/ipv4/conf/"+inside+"/rp_filter=0"))
		})
	}
	if err == nil {
		err = n.masqueradeClient()
	}
	if err != nil {
		return fmt.Errorf("connecting %s to the client: %w", link, err)
	}
	return nil
}

// masqueradeClient gives all that leaves the client to the lab the client's address.
func (n *Network) masqueradeClient() error {
	conn, err := nftables.New(nftables.WithNetNSFd(n.Client.Fd()))
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "hitless-outside"})
	chain := conn.AddChain(&nftables.Chain{Name: "after", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource})
	eth0 := append([]byte("eth0"), make([]byte, unix.IFNAMSIZ-len("eth0"))...)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(equal(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, eth0), &expr.Masq{})})
	return conn.Flush()
}

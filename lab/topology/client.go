package topology

import (
	"errors"
	"fmt"
	"net/netip"
)

// The addresses of the pod of a client in the cluster. They are the cluster's, and no node's PodCIDR has them.
var (
	clientPodCIDR = netip.MustParsePrefix("10.244.250.0/30")
	clientPodGate = netip.MustParseAddr("10.244.250.1")
	// ClientPodAddr is the address of the pod that AddClientPod makes.
	ClientPodAddr = netip.MustParseAddr("10.244.250.2")
)

// manyPorts gives a namespace that connects at a high rate more ports than the default, and keeps it off NodePorts.
var manyPorts = []string{"net/ipv4/ip_local_port_range=1024 65535", "net/ipv4/ip_local_reserved_ports=30000-32767"}

// AddClientPod makes the pod of a client on the node, which no API knows. It has a wire of its own and is no port of the
// bridge of the pods: there a neighbour's answer would not pass the node, which has to translate it back.
func (n *Network) AddClientPod(node *Node) (*Namespace, error) {
	const wire = "clientpod"
	n.rhythm.Await()
	ns, err := NewNamespace("client-pod")
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		node.Do(func() error {
			return errors.Join(connect(wire, "eth0", ns), netlinkUp(wire, netip.PrefixFrom(clientPodGate, clientPodCIDR.Bits())),
				sysctls("net/ipv4/conf/"+wire+"/rp_filter=0", "net/ipv4/conf/"+wire+"/send_redirects=0"))
		}),
		ns.Do(func() error {
			return errors.Join(netlinkUp("lo", netip.Prefix{}), netlinkUp("eth0", netip.PrefixFrom(ClientPodAddr, clientPodCIDR.Bits())),
				addRoute(netip.PrefixFrom(netip.IPv4Unspecified(), 0), clientPodGate), sysctls(manyPorts...))
		}),
		n.RouteTo(clientPodCIDR, node))
	if err != nil {
		_ = ns.Close() // the first error is told
		return nil, fmt.Errorf("wiring the client's pod on %s: %w", node.Name, err)
	}
	return ns, nil
}

// PrepareClient readies a node for a client that runs on it.
func (n *Node) PrepareClient() error {
	if err := n.Do(func() error { return sysctls(manyPorts...) }); err != nil {
		return fmt.Errorf("preparing %s for a client: %w", n.Name, err)
	}
	return nil
}

// RouteTo sends what goes to a range of addresses to the node, from everywhere else: from other nodes, from outside, and from
// the control plane. The caller is in the lab's own namespace.
func (n *Network) RouteTo(to netip.Prefix, node *Node) error {
	via := func() error { return addRoute(to, node.Addr) }
	err := errors.Join(via(), n.Balancer.Do(via))
	for _, other := range n.Nodes {
		if other != node {
			err = errors.Join(err, other.Do(via))
		}
	}
	return err
}

//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net/netip"

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

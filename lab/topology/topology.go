// Package topology lays the lab's network: namespaces for nodes, pods, clients and the external load balancer, the
// wires between them, addresses and routes. It is not for what runs in them.
//
//	client ── balancer ── fabric (bridge in the lab's own namespace, with the control plane) ── nodes ── pods
package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// The lab's addresses.
var (
	ControlAddr  = netip.MustParseAddr("10.0.0.2")
	BalancerAddr = netip.MustParseAddr("10.0.0.1")
	ServiceCIDR  = netip.MustParsePrefix("10.96.0.0/16")
	ClusterCIDR  = netip.MustParsePrefix("10.244.0.0/16")
	ExternalCIDR = netip.MustParsePrefix("203.0.113.0/24")
	ClientAddr   = netip.MustParseAddr("198.51.100.2")
	clientGate   = netip.MustParseAddr("198.51.100.1")
	// ClientSources is the AnyIP range of the client: any of its addresses can be bound there without being added.
	ClientSources = netip.MustParsePrefix("10.200.0.0/16")
)

// Network is the lab's network. It is not safe for concurrent use, but for AddPod and RemovePod of different nodes.
type Network struct {
	Nodes    []*Node
	Client   *Namespace
	Balancer *Namespace

	rhythm *Rhythm
}

// Node is one node of the lab.
type Node struct {
	*Namespace
	Number  int // from 1
	Addr    netip.Addr
	PodCIDR netip.Prefix

	rhythm *Rhythm
}

// MaxNodes is how many nodes the addressing plan has room for.
const MaxNodes = 200

// New lays the network with the given number of nodes, 1 to MaxNodes. It must be called in a network namespace of the
// lab's own, where it makes the bridge `fabric`.
func New(nodes int) (*Network, error) { return NewInRhythm(nodes, nil) }

// NewInRhythm is New with all namespaces, those of later pods too, made in a rhythm; nil for none.
func NewInRhythm(nodes int, rhythm *Rhythm) (*Network, error) {
	if nodes < 1 || nodes > MaxNodes {
		return nil, fmt.Errorf("a lab of %d nodes: give 1 to %d", nodes, MaxNodes)
	}
	n := &Network{rhythm: rhythm}
	if err := n.lay(nodes); err != nil {
		n.Close()
		return nil, fmt.Errorf("laying the lab's network: %w", err)
	}
	return n, nil
}

func (n *Network) lay(nodes int) error {
	if err := layFabric(); err != nil {
		return err
	}
	var err error
	n.rhythm.Await()
	if n.Balancer, err = attach("balancer", "fab-lb", BalancerAddr); err != nil {
		return err
	}
	n.rhythm.Await()
	if n.Client, err = NewNamespace("client"); err != nil {
		return err
	}
	if err := n.wireClient(); err != nil {
		return fmt.Errorf("wiring the client: %w", err)
	}
	for i := 1; i <= nodes; i++ {
		if err := n.addNode(i); err != nil {
			return err
		}
	}
	return nil
}

func layFabric() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "fabric"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making the bridge: %w", err)
	}
	if err := netlinkUp("lo", netip.Prefix{}); err != nil {
		return err
	}
	if err := sysctls("net/ipv4/ip_forward=1"); err != nil {
		return err
	}
	if err := netlinkUp("fabric", netip.PrefixFrom(ControlAddr, 24)); err != nil {
		return err
	}
	// Everything behind the balancer is reached through it, so that answers to clients go back the way they came.
	return addRoute(netip.PrefixFrom(netip.IPv4Unspecified(), 0), BalancerAddr)
}

// attach makes a namespace with one wire to the fabric.
func attach(name, wire string, addr netip.Addr) (*Namespace, error) {
	ns, err := NewNamespace(name)
	if err != nil {
		return nil, err
	}
	if err := connect(wire, "eth0", ns); err != nil {
		return ns, fmt.Errorf("wiring %s: %w", name, err)
	}
	if err := enslave(wire, "fabric"); err != nil {
		return ns, fmt.Errorf("wiring %s: %w", name, err)
	}
	return ns, ns.Do(func() error {
		return errors.Join(
			netlinkUp("lo", netip.Prefix{}),
			netlinkUp("eth0", netip.PrefixFrom(addr, 24)),
			sysctls(router...))
	})
}

// router are the settings of a namespace that forwards. Without icmp_ratelimit=0 a refused connection degrades into a
// slow time-out, because the kernel sends only one ICMP error a second to a destination.
var router = []string{"net/ipv4/ip_forward=1", "net/ipv4/icmp_ratelimit=0", "net/ipv4/icmp_msgs_per_sec=100000",
	"net/ipv4/icmp_msgs_burst=10000", "net/ipv4/conf/all/rp_filter=0", "net/ipv4/conf/default/rp_filter=0",
	"net/ipv4/conf/eth0/rp_filter=0", "net/ipv4/conf/all/send_redirects=0", "net/ipv4/conf/eth0/send_redirects=0"}

func (n *Network) wireClient() error {
	err := n.Balancer.Do(func() error {
		if err := connect("client", "eth0", n.Client); err != nil {
			return err
		}
		return errors.Join(
			netlinkUp("client", netip.PrefixFrom(clientGate, 24)),
			addRoute(ClientSources, ClientAddr),
			sysctls("net/ipv4/conf/client/rp_filter=0", "net/ipv4/conf/client/send_redirects=0"))
	})
	if err != nil {
		return err
	}
	return n.Client.Do(func() error {
		return errors.Join(
			netlinkUp("lo", netip.Prefix{}),
			netlinkUp("eth0", netip.PrefixFrom(ClientAddr, 24)),
			addRoute(netip.PrefixFrom(netip.IPv4Unspecified(), 0), clientGate),
			addLocal(ClientSources),
			sysctls("net/ipv4/ip_local_port_range=1024 65535", "net/ipv4/conf/all/rp_filter=0"))
	})
}

func (n *Network) addNode(number int) error {
	node := &Node{Number: number, rhythm: n.rhythm,
		Addr:    netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + number)}),
		PodCIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(number), 0}), 24)}
	var err error
	n.rhythm.Await()
	node.Namespace, err = attach(fmt.Sprintf("node-%d", number), node.wire(), node.Addr)
	if node.Namespace != nil {
		n.Nodes = append(n.Nodes, node)
	}
	if err != nil {
		return err
	}
	if err := node.Do(node.layPods); err != nil {
		return fmt.Errorf("preparing %s: %w", node.Name, err)
	}
	return n.route(node)
}

// layPods makes the bridge of the node's pods and the node's way out.
func (n *Node) layPods() error {
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pods"}}); err != nil {
		return fmt.Errorf("making the bridge of the pods: %w", err)
	}
	return errors.Join(
		netlinkUp("pods", netip.PrefixFrom(n.PodCIDR.Addr().Next(), 24)),
		sysctls("net/ipv4/conf/pods/rp_filter=0", "net/ipv4/conf/pods/send_redirects=0"),
		addRoute(netip.PrefixFrom(netip.IPv4Unspecified(), 0), BalancerAddr))
}

// route tells every other place on the fabric the way to the node's pods.
func (n *Network) route(node *Node) error {
	err := errors.Join(addRoute(node.PodCIDR, node.Addr),
		n.Balancer.Do(func() error { return addRoute(node.PodCIDR, node.Addr) }))
	for _, other := range n.Nodes {
		if other != node {
			err = errors.Join(err,
				other.Do(func() error { return addRoute(node.PodCIDR, node.Addr) }),
				node.Do(func() error { return addRoute(other.PodCIDR, other.Addr) }))
		}
	}
	return err
}

// Node returns the node of that name.
func (n *Network) Node(name string) (*Node, error) {
	names := make([]string, len(n.Nodes))
	for i, node := range n.Nodes {
		if node.Name == name {
			return node, nil
		}
		names[i] = node.Name
	}
	return nil, fmt.Errorf("no node %q in the lab; the nodes are %s", name, strings.Join(names, ", "))
}

// NodeNames are the names of the nodes in their order.
func (n *Network) NodeNames() []string {
	names := make([]string, len(n.Nodes))
	for i, node := range n.Nodes {
		names[i] = node.Name
	}
	return names
}

// AddPod makes the namespace of a pod with the given address on the node. The address must be within PodCIDR.
func (n *Node) AddPod(pod string, addr netip.Addr) (*Namespace, error) {
	if !n.PodCIDR.Contains(addr) {
		return nil, fmt.Errorf("pod %s: address %s is outside %s's %s", pod, addr, n.Name, n.PodCIDR)
	}
	n.rhythm.Await()
	ns, err := NewNamespace(pod)
	if err != nil {
		return nil, err
	}
	wire := fmt.Sprintf("pod%d", addr.As4()[3])
	err = n.Do(func() error {
		return errors.Join(connect(wire, "eth0", ns), enslave(wire, "pods"))
	})
	if err == nil {
		err = ns.Do(func() error {
			return errors.Join(
				netlinkUp("lo", netip.Prefix{}),
				netlinkUp("eth0", netip.PrefixFrom(addr, 24)),
				addRoute(netip.PrefixFrom(netip.IPv4Unspecified(), 0), n.PodCIDR.Addr().Next()))
		})
	}
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("wiring pod %s on %s: %w", pod, n.Name, err)
	}
	return ns, nil
}

// RemovePod takes the wire of a pod's address away, as a container runtime does when the sandbox is removed.
func (n *Node) RemovePod(addr netip.Addr) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(fmt.Sprintf("pod%d", addr.As4()[3]))
		if err != nil {
			return fmt.Errorf("removing the wire of pod %s on %s: %w", addr, n.Name, err)
		}
		return netlink.LinkDel(link)
	})
}

// Close lets all namespaces go.
func (n *Network) Close() {
	for _, ns := range []*Namespace{n.Client, n.Balancer} {
		if ns != nil {
			ns.Close()
		}
	}
	for _, node := range n.Nodes {
		node.Close()
	}
}

// sysctls writes settings of the calling thread's network namespace, each as path=value below /proc/sys.
func sysctls(settings ...string) error {
	for _, s := range settings {
		path, value, _ := strings.Cut(s, "=")
		// /proc/sys/net shows the namespace of the thread that opens it.
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting %s: %w", s, err)
		}
	}
	return nil
}

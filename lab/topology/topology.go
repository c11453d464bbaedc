//go:build linux

// Package topology creates the lab's network: namespaces for nodes, pods, clients and the external load balancer, the
// links between them, addresses and routes. It does not start programs.
//
//	client ── balancer ── fabric (bridge in the lab's own namespace, with the control plane) ── nodes ── pods
package topology

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/hitless/hitless/record"
	"github.com/vishvananda/netlink"
)

// Network is the lab's network. It is not safe for concurrent use, except for AddPod and RemovePod of different
// nodes.
type Network struct {
	Nodes    []*Node
	Client   *Namespace
	Balancer *Namespace

	cfg   Config
	plans []Addresses // of each family, the primary one first
	pacer *Pacer
}

// Config configures a network.
type Config struct {
	Nodes  int           // 1 to MaxNodes
	Family record.Family // IPv4 if empty
	Pacer  *Pacer        // for the creation of all namespaces, including those of later pods; nil for none
	// OwnKernel gives each node a control group and a writable /sys, in a kernel that serves this lab alone.
	OwnKernel bool
	// Files is a directory with the files that each node has in directories of its own when it boots, such as Files/var/lib/x; empty
	// for none, and it need not exist.
	Files string
}

// Node is one node of the lab.
type Node struct {
	*Namespace
	Number  int          // from 1
	Addr    netip.Addr   // of the primary family
	PodCIDR netip.Prefix // of the primary family

	plans []Addresses // of each family, the primary one first
	pacer *Pacer
	own   private
	ports hostPorts
}

// New creates the network of IPv4 with 1 to MaxNodes nodes, as Create.
func New(nodes int) (*Network, error) { return Create(Config{Nodes: nodes}) }

// Create creates the network. The caller must be in a network namespace of the lab's own, where Create makes the bridge `fabric`.
func Create(cfg Config) (*Network, error) {
	if cfg.Nodes < 1 || cfg.Nodes > MaxNodes {
		return nil, fmt.Errorf("%d nodes: want 1 to %d", cfg.Nodes, MaxNodes)
	}
	n := &Network{cfg: cfg, plans: plansOf(cmp.Or(cfg.Family, record.IPv4)), pacer: cfg.Pacer}
	if err := n.create(cfg.Nodes); err != nil {
		n.Close()
		return nil, fmt.Errorf("creating the lab's network: %w", err)
	}
	return n, nil
}

func (n *Network) create(nodes int) error {
	if err := n.createFabric(); err != nil {
		return err
	}
	var err error
	n.pacer.Await()
	if n.Balancer, err = attach("balancer", "fab-lb", each(n.plans, Addresses.balancerLink)); err != nil {
		return err
	}
	n.pacer.Await()
	if n.Client, err = newNamespace("client", n.plans); err != nil {
		return err
	}
	if err := n.connectClient(); err != nil {
		return fmt.Errorf("connecting the client: %w", err)
	}
	for i := 1; i <= nodes; i++ {
		if err := n.addNode(i); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) createFabric() error {
	if err := routeIPv6(each(n.plans, Addresses.controlLink)); err != nil {
		return err
	}
	if err := netlink.LinkAdd(bridge("fabric", "lab")); err != nil {
		return fmt.Errorf("creating the bridge: %w", err)
	}
	if err := netlinkUp("lo"); err != nil {
		return err
	}
	if err := sysctls("net/ipv4/ip_forward=1"); err != nil {
		return err
	}
	if err := netlinkUp("fabric", each(n.plans, Addresses.controlLink)...); err != nil {
		return err
	}
	// Replies to clients leave through the load balancer, as requests arrived.
	return defaultRoutes(each(n.plans, Addresses.balancer))
}

// attach creates a namespace with one link to the fabric.
func attach(name, link string, addrs []netip.Prefix) (*Namespace, error) {
	ns, err := NewNamespace(name)
	if err != nil {
		return nil, err
	}
	if err := ns.Do(func() error { return routeIPv6(addrs) }); err != nil {
		return ns, fmt.Errorf("preparing %s: %w", name, err)
	}
	if err := connect(link, "eth0", ns); err != nil {
		return ns, fmt.Errorf("connecting %s: %w", name, err)
	}
	if err := errors.Join(enslave(link, "fabric"), assign(link, macAddress(link, ns.Name, 1))); err != nil {
		return ns, fmt.Errorf("connecting %s: %w", name, err)
	}
	return ns, ns.Do(func() error {
		return errors.Join(
			netlinkUp("lo"),
			netlinkUp("eth0", addrs...),
			sysctls(routerSysctls...))
	})
}

// routerSysctls make a namespace forward packets. icmp_ratelimit=0 disables the limit of one ICMP error per second
// and destination, which would turn refused connections into timeouts.
var routerSysctls = []string{"net/ipv4/ip_forward=1", "net/ipv4/icmp_ratelimit=0", "net/ipv4/icmp_msgs_per_sec=100000",
	"net/ipv4/icmp_msgs_burst=10000", "net/ipv4/conf/all/rp_filter=0", "net/ipv4/conf/default/rp_filter=0",
	"net/ipv4/conf/eth0/rp_filter=0", "net/ipv4/conf/all/send_redirects=0", "net/ipv4/conf/eth0/send_redirects=0"}

func (n *Network) connectClient() error {
	err := n.Balancer.Do(func() error {
		if err := connect("client", "eth0", n.Client); err != nil {
			return err
		}
		err := netlinkUp("client", each(n.plans, Addresses.clientGatewayLink)...)
		for _, p := range n.plans {
			err = errors.Join(err, addRoute(p.ClientSources, p.client))
		}
		return errors.Join(err, sysctls("net/ipv4/conf/client/rp_filter=0", "net/ipv4/conf/client/send_redirects=0"))
	})
	if err != nil {
		return err
	}
	return n.Client.Do(func() error {
		err := errors.Join(
			netlinkUp("lo"),
			netlinkUp("eth0", each(n.plans, Addresses.clientLink)...),
			defaultRoutes(each(n.plans, Addresses.gatewayOfClient)))
		for _, p := range n.plans {
			err = errors.Join(err, addLocal(p.ClientSources))
		}
		return errors.Join(err, sysctls("net/ipv4/ip_local_port_range=1024 65535", "net/ipv4/conf/all/rp_filter=0"))
	})
}

func (n *Network) addNode(number int) error {
	node := n.planned(number)
	var err error
	n.pacer.Await()
	node.Namespace, err = attach(node.Name, node.fabricLink(), node.links())
	if node.Namespace != nil {
		n.Nodes = append(n.Nodes, node)
	}
	if err != nil {
		return err
	}
	if err := node.Do(node.createPodNetwork); err != nil {
		return fmt.Errorf("preparing %s: %w", node.Name, err)
	}
	if err := node.Boot(n.cfg); err != nil {
		return err
	}
	return n.addPodRoutes(node)
}

// createPodNetwork creates the bridge of the node's pods and the node's default route.
func (n *Node) createPodNetwork() error {
	if err := netlink.LinkAdd(bridge("pods", n.Name)); err != nil {
		return fmt.Errorf("creating the pod bridge: %w", err)
	}
	return errors.Join(
		netlinkUp("pods", n.podGateways()...),
		sysctls("net/ipv4/conf/pods/rp_filter=0", "net/ipv4/conf/pods/send_redirects=0"),
		defaultRoutes(each(n.plans, Addresses.balancer)))
}

// addPodRoutes adds the routes between the node's pods and every other namespace on the fabric.
func (n *Network) addPodRoutes(node *Node) error {
	err := errors.Join(node.routeToPods(), n.Balancer.Do(node.routeToPods))
	for _, other := range n.Nodes {
		if other != node {
			err = errors.Join(err, other.Do(node.routeToPods), node.Do(other.routeToPods))
		}
	}
	return err
}

// Node returns the node with that name.
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

// NodeNames returns the names of the nodes in order.
func (n *Network) NodeNames() []string {
	names := make([]string, len(n.Nodes))
	for i, node := range n.Nodes {
		names[i] = node.Name
	}
	return names
}

// AddPod creates the network namespace of a pod on the node, with the addresses of PodAddrs. The address must be within
// PodCIDR.
func (n *Node) AddPod(pod string, addr netip.Addr) (*Namespace, error) {
	return n.addPod(pod, addr, func(link string) error { return errors.Join(enslave(link, "pods"), hairpin(link)) })
}

// AddRoutedPod is AddPod for a CNI plugin that attaches to a link of its own: the pod's link is no port of the bridge. The node routes to it,
// and answers for its neighbours.
func (n *Node) AddRoutedPod(pod string, addr netip.Addr) (*Namespace, error) {
	return n.addPod(pod, addr, func(link string) error {
		own := "net/ipv4/conf/" + link + "/"
		return errors.Join(sysctls(own+"rp_filter=0", own+"send_redirects=0", own+"proxy_arp=1", "net/ipv4/neigh/"+link+"/proxy_delay=0"),
			routeToLinks(link, n.PodAddrs(addr)))
	})
}

// addPod creates the namespace, and connects the node's end of its link.
func (n *Node) addPod(pod string, addr netip.Addr, attach func(link string) error) (*Namespace, error) {
	if !n.PodCIDR.Contains(addr) {
		return nil, fmt.Errorf("pod %s: address %s is outside %s's %s", pod, addr, n.Name, n.PodCIDR)
	}
	n.pacer.Await()
	ns, err := newNamespace(pod, n.plans)
	if err != nil {
		return nil, err
	}
	link := podLink(addr)
	err = n.Do(func() error {
		return errors.Join(connect(link, "eth0", ns), attach(link))
	})
	if err == nil {
		err = ns.Do(func() error {
			return errors.Join(
				netlinkUp("lo"),
				netlinkUp("eth0", n.podLinks(addr)...),
				defaultRoutes(addrsOf(n.podGateways())))
		})
	}
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("connecting pod %s on %s: %w", pod, n.Name, err)
	}
	return ns, nil
}

// RemovePod deletes the link of a pod's address, as a container runtime does when it removes the sandbox.
func (n *Node) RemovePod(addr netip.Addr) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(podLink(addr))
		if err != nil {
			return fmt.Errorf("removing the link of pod %s on %s: %w", addr, n.Name, err)
		}
		return netlink.LinkDel(link)
	})
}

// Close closes all namespaces, and kills what still runs in the control groups of nodes.
func (n *Network) Close() {
	for _, ns := range []*Namespace{n.Client, n.Balancer} {
		if ns != nil {
			ns.Close()
		}
	}
	for _, node := range n.Nodes {
		_ = node.Discard() // the network ends anyway
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

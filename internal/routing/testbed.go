//go:build linux

package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
)

// namespace is where the programs of a host run.
type namespace = *topology.Namespace

// Testbed is a node with clients and pods, an API server, and a proxy.
type Testbed struct {
	family Family
	boot   topology.Config // of the node: OwnKernel and Files count
	dir    string
	api    *replay.Server
	node   *topology.Node
	hosts  map[string]*host
	procs  *procs.Supervisor
	sctp   error // why this kernel has no SCTP; nil if it has

	kubeconfig string
	program    string // Config.Program
	closers    []func() error
}

// Open makes a node in a network namespace of its own, with its neighbours, and applies all Services. It needs root in a user
// namespace. dir is for the files and logs of its programs. Close must follow, also after an error.
func Open(ctx context.Context, dir string, f Family, boot topology.Config) (*Testbed, error) {
	w, err := openEmpty(ctx, dir, f, boot)
	if err != nil {
		return w, err
	}
	return w, w.Apply(f.Services()...)
}

// openEmpty is Open without Services.
func openEmpty(ctx context.Context, dir string, f Family, boot topology.Config) (*Testbed, error) {
	w := &Testbed{family: f, boot: boot, dir: dir, api: replay.New(), hosts: map[string]*host{}}
	for _, step := range []func(context.Context) error{w.makeNode, w.serveAPI, w.makeHosts, w.describeNode} {
		if err := step(ctx); err != nil {
			return w, fmt.Errorf("making the node for the checks of Services: %w", err)
		}
	}
	return w, nil
}

// Close ends all programs and removes the namespaces.
func (w *Testbed) Close() error {
	if w.procs != nil {
		w.procs.StopAll(5 * time.Second)
	}
	var all []error
	for _, closer := range slices.Backward(w.closers) {
		all = append(all, closer())
	}
	w.closers = nil
	return errors.Join(all...)
}

// sysctls of the node. Without the limits of ICMP a refusal is not lost.
var nodeSysctls = map[string]string{"ipv4/ip_forward": "1", "ipv4/icmp_ratelimit": "0", "ipv6/conf/all/forwarding": "1", "ipv6/icmp/ratelimit": "0"}

func (w *Testbed) makeNode(context.Context) (err error) {
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	if w.procs, err = procs.New(filepath.Join(w.dir, "logs")); err != nil {
		return err
	}
	ns, err := w.namespace(nodeName)
	if err != nil {
		return err
	}
	w.node = &topology.Node{Namespace: ns, Number: 1, Addr: netip.MustParseAddr(nodeAddr), PodCIDR: netip.MustParsePrefix("10.244.0.0/16")}
	if err := w.node.Boot(w.boot); err != nil {
		return err
	}
	w.closers = append(w.closers, w.node.Discard)
	return ns.Do(func() error {
		err := up("lo")
		for path, value := range nodeSysctls {
			err = errors.Join(err, sysctl(path, value))
		}
		return err
	})
}

// namespace makes a namespace whose IPv6 addresses are usable at once. It forwards nothing, although new namespaces inherit that.
func (w *Testbed) namespace(name string) (*topology.Namespace, error) {
	ns, err := topology.NewNamespace(name)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, ns.Close)
	return ns, ns.Do(func() error {
		return errors.Join(sysctl("ipv4/ip_forward", "0"), sysctl("ipv6/conf/all/accept_dad", "0"), sysctl("ipv6/conf/default/accept_dad", "0"))
	})
}

func sysctl(path, value string) error {
	return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644)
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// serveAPI serves the API on the node's loopback, and writes a kubeconfig for it.
func (w *Testbed) serveAPI(ctx context.Context) error {
	l, err := w.node.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.api.Serve(serving, l) }()
	w.closers = append(w.closers, func() error { cancel(); <-served; return nil })
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"lab","clusters":[{"name":"lab","cluster":{"server":"http://%s"}}],
"users":[{"name":"lab","user":{}}],"contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}]}`, l.Addr())
	return os.WriteFile(w.kubeconfig, []byte(text), 0o600)
}

// makeHosts connects the clients and pods to the node, and starts the servers of the pods and of the node.
func (w *Testbed) makeHosts(ctx context.Context) error {
	for _, h := range hosts() {
		if err := w.connect(h); err != nil {
			return fmt.Errorf("connecting %s: %w", h.name, err)
		}
		w.hosts[h.name] = h
		if h.nodeName != "" {
			if err := w.servePod(ctx, h); err != nil {
				return fmt.Errorf("serving at pod %s: %w", h.name, err)
			}
		}
	}
	w.hosts["node"] = &host{name: "node", ns: w.node.Namespace}
	// Like a real node, it has default routes, so that its own packets to virtual addresses have an output device.
	err := w.node.Do(func() error {
		link, err := netlink.LinkByName("client")
		for _, gateway := range w.hosts["client"].addrs {
			if err == nil {
				err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)})
			}
		}
		return err
	})
	return errors.Join(err, w.serveHostPort(ctx))
}

// connect makes a host's namespace and its link to the node.
func (w *Testbed) connect(h *host) (err error) {
	if h.ns, err = w.namespace(h.name); err != nil {
		return err
	}
	err = w.node.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: h.name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.ns.Fd())}
		return errors.Join(netlink.LinkAdd(veth), up(h.name), addAddrs(h.name, h.nodeAddrs))
	})
	if err != nil {
		return err
	}
	return h.ns.Do(func() error {
		err := errors.Join(up("lo"), up("eth0"), addAddrs("eth0", h.addrs))
		routed := map[bool]bool{}
		for _, gateway := range h.nodeAddrs {
			if six := netip.MustParseAddr(gateway).Is6(); !routed[six] {
				routed[six] = true
				err = errors.Join(err, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}))
			}
		}
		return err
	})
}

// addAddrs adds addresses to a device, with prefixes of /24 and /64.
func addAddrs(name string, addrs []string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	for _, text := range addrs {
		bits := "/24"
		if netip.MustParseAddr(text).Is6() {
			bits = "/64"
		}
		addr, err := netlink.ParseAddr(text + bits)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("adding %s to %s: %w", text, name, err)
		}
	}
	return nil
}

// describeNode makes the node, and the namespaces of each cluster and of the Services.
func (w *Testbed) describeNode(context.Context) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, shop} {
		if err := w.Apply(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return w.applyNode(nil)
}

// applyNode makes the node, or changes its labels.
func (w *Testbed) applyNode(labels map[string]string) error {
	this := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: labels}, Spec: v1.NodeSpec{PodCIDR: w.node.PodCIDR.String()}}
	addrs := []string{nodeAddr, nodeAddr6}
	if w.family == IPv6 {
		slices.Reverse(addrs) // the first one is of the node's primary family
	}
	for _, a := range addrs {
		this.Status.Addresses = append(this.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
	}
	return w.Apply(this)
}

// Apply makes or replaces objects.
func (w *Testbed) Apply(objects ...runtime.Object) error {
	for _, o := range objects {
		if _, err := w.api.Apply(o); err != nil {
			return fmt.Errorf("applying an object: %w", err)
		}
	}
	return nil
}

// remove deletes an object of the API.
func (w *Testbed) remove(kind, namespace, name string) error {
	return w.api.Delete(replay.Ref{Kind: kind, Namespace: namespace, Name: name}, metav1.DeleteOptions{})
}

// Start starts the proxy of the node, waits until it is ready, and gives the node its zone. Its programs are those of c, and its flags too.
func (w *Testbed) Start(ctx context.Context, c subject.Config) error {
	if _, err := w.start(ctx, c); err != nil {
		return err
	}
	// kube-proxy v1.34 and later may miss the zone of a node that has one at the proxy's start (docs/results/findings.md).
	return w.applyNode(map[string]string{v1.LabelTopologyZone: zone})
}

// start is Start. The fleet is that of the one node.
func (w *Testbed) start(ctx context.Context, c subject.Config) (*subject.Fleet, error) {
	c.Net, c.Procs, c.Kubeconfig = &topology.Network{Nodes: []*topology.Node{w.node}}, w.procs, w.kubeconfig
	if c.ClusterCIDR == "" && c.Programs[0].Spec.DualStack() {
		c.ClusterCIDR = podRanges
	}
	spec := c.Programs[0].Spec
	c.Devices = outside()
	if err := errors.Join(kube.CreateObjects(ctx, w.kubeconfig, w.node.DialContext, spec.Exec.ManifestPaths()), w.describePods(spec)); err != nil {
		return nil, err
	}
	fleet, err := subject.NewFleet(c)
	if err != nil {
		return nil, err
	}
	if err := fleet.StartAll(ctx); err != nil {
		return fleet, err
	}
	return fleet, w.attachPods(ctx, spec)
}

// podRanges are the ranges of all pods, of both families.
const podRanges = "10.244.0.0/16,fd00:244::/48"

// nameOf returns the name of the host with an address.
func (w *Testbed) nameOf(addr string) string {
	for name, h := range w.hosts {
		if slices.Contains(h.addrs, addr) {
			return name
		}
		if slices.Contains(h.nodeAddrs, addr) {
			return "node"
		}
	}
	return "unknown host " + addr
}

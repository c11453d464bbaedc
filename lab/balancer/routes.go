package balancer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// firstTable+N is the routing table of node N. It is above 255, the last of the tables that the kernel reserves.
const firstTable = 1000

// routes routes each mark of a family to the node of that number: `ip rule fwmark N lookup 1000+N`, and a default route in that
// table.
type routes struct {
	handle *netlink.Handle
	nodes  []*topology.Node
	family record.Family
}

func newRoutes(lab *topology.Network, family record.Family) (*routes, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(lab.Balancer.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink in the balancer's namespace: %w", err)
	}
	r := &routes{handle: handle, nodes: lab.Nodes, family: family}
	if err := errors.Join(r.clear(), r.create()); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *routes) create() error {
	link, err := r.handle.LinkByName(topology.FabricInterface)
	if err != nil {
		return fmt.Errorf("finding the balancer's interface to the nodes: %w", err)
	}
	for _, n := range r.nodes {
		if err := r.handle.RouteAdd(r.route(n, link.Attrs().Index)); err != nil {
			return fmt.Errorf("adding the route for flows of %s: %w", n.Name, err)
		}
		if err := r.handle.RuleAdd(r.rule(n)); err != nil {
			return fmt.Errorf("adding the routing rule for flows of %s: %w (the kernel needs IP_MULTIPLE_TABLES)", n.Name, err)
		}
	}
	return nil
}

// clear removes the rules and routes; missing ones are not an error.
func (r *routes) clear() error {
	var errs error
	for _, n := range r.nodes {
		for _, err := range []error{r.handle.RuleDel(r.rule(n)), r.handle.RouteDel(r.route(n, 0))} {
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
				errs = errors.Join(errs, fmt.Errorf("removing the routes for flows of %s: %w", n.Name, err))
			}
		}
	}
	return errs
}

func (r *routes) close() error {
	err := r.clear()
	r.handle.Close()
	return err
}

func (r *routes) rule(n *topology.Node) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Priority = unix.AF_INET, firstTable+n.Number
	if r.family == record.IPv6 {
		rule.Family = unix.AF_INET6
	}
	rule.Mark, rule.Table = uint32(n.Number), firstTable+n.Number
	return rule
}

func (r *routes) route(n *topology.Node, link int) *netlink.Route {
	gateway := n.AddrOf(r.family)
	everywhere := &net.IPNet{IP: make(net.IP, gateway.BitLen()/8), Mask: net.CIDRMask(0, gateway.BitLen())}
	return &netlink.Route{Dst: everywhere, Gw: gateway.AsSlice(), LinkIndex: link, Table: firstTable + n.Number}
}

// DialVia dials a literal address from the balancer of a lab with the node as the next hop, whatever the membership is. It
// needs the routes of the passthrough balancer.
func DialVia(ctx context.Context, lab *topology.Network, n *topology.Node, network, address string) (conn net.Conn, err error) {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var marked error
		err := c.Control(func(fd uintptr) { marked = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, n.Number) })
		return errors.Join(err, marked)
	}}
	err = lab.Balancer.Do(func() error {
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// sysctl sets a value below /proc/sys of a namespace.
func sysctl(ns *topology.Namespace, path, value string) error {
	return ns.Do(func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0) })
}

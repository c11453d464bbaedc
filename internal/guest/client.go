//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/backend"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// client is the namespace where the lanes start.
type client struct {
	*topology.Namespace
	name            string         // in the record
	node            *topology.Node // on which it is; nil outside of the cluster
	group           string         // of the node
	throughBalancer bool           // the external load balancer
	outside         bool
	sources         []netip.Prefix // its addresses, of each family
}

// clientOf prepares the client that the parameters name, and its route to the target.
func clientOf(l *lab.Lab, params map[string]string) (c client, err error) {
	p, first := scenarios.Params(params), l.Net.Nodes[0]
	c = client{Namespace: l.Net.Client, name: "client", throughBalancer: p.ThroughBalancer(), outside: true}
	for _, a := range l.Net.Plans() {
		c.sources = append(c.sources, a.ClientSources)
	}
	switch scenarios.ClientPlace.Of(p) {
	case scenarios.OnNode:
		c.Namespace, c.name, c.outside, err = first.Namespace, first.Name, false, first.PrepareClient()
		c.node, c.group = first, topology.GroupSystem
		c.sources = nil
		for _, a := range first.Addrs() {
			c.sources = append(c.sources, netip.PrefixFrom(a, a.BitLen()))
		}
	case scenarios.InPod:
		c.name, c.outside = "a pod on "+first.Name, false
		c.sources = nil
		for _, a := range l.Net.Plans() {
			c.sources = append(c.sources, netip.PrefixFrom(a.ClientPod, a.ClientPod.BitLen()))
		}
		c.Namespace, err = l.Net.AddClientPod(first)
		c.node, c.group = first, topology.GroupPods
	}
	if err == nil && scenarios.Target.Of(p) == scenarios.ToExternalIP {
		for _, a := range l.Net.Plans() {
			err = errors.Join(err, l.Net.RouteTo(scenarios.ExternalIPs(a.Family), first))
		}
	}
	if err != nil {
		return c, fmt.Errorf("preparing the client: %w", err)
	}
	return c, nil
}

// sourcesOf are the client's addresses of the family of a target.
func (c client) sourcesOf(target netip.Addr) netip.Prefix {
	i := slices.IndexFunc(c.sources, func(p netip.Prefix) bool { return record.FamilyOf(p.Addr()) == record.FamilyOf(target) })
	if i < 0 {
		return netip.Prefix{}
	}
	return c.sources[i]
}

// start starts a program where the client is.
func (c client) start(s *procs.Supervisor, spec procs.Spec) (*procs.Process, error) {
	if c.node == nil {
		spec.Enter = c.Enter
		return s.Start(spec)
	}
	return c.node.StartIn(c.Namespace, s, c.group, spec)
}

// limits are those of the client's namespace.
func (c client) limits() (l probes.Limits, err error) {
	err = c.Do(func() (inner error) { l, inner = probes.LocalLimits(); return inner })
	return l, err
}

// followPods passes the endpoints of the API to pods until stop is called.
func followPods(ctx context.Context, l *lab.Lab, pods *prober.Pods, now func() time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- observers.WatchEndpoints(ctx, l.Client, metav1.NamespaceDefault, pods, now) }()
	return func() error {
		cancel()
		return errors.Join(<-over, pods.Close())
	}
}

// hold opens an idle connection. IPVS drops connections without packets after 15 minutes, so it has keep-alives; their interval is
// longer than Go's 15 s, which would be most of the guest's work with hundreds of connections.
func (c client) hold(ctx context.Context, target string) (io.Closer, error) {
	conn, err := besideLanes(c.Namespace)(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	tcp, is := conn.(*net.TCPConn)
	if !is {
		return conn, nil
	}
	if err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: backend.KeepAlive, Interval: backend.KeepAlive}); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping the connection to %s alive: %w", target, err), conn.Close())
	}
	return conn, nil
}

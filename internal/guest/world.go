//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/balancer"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// runClock is the clock of the run.
type runClock struct{ now func() time.Duration }

func (c runClock) Now() time.Duration { return c.now() }

func (c runClock) Sleep(ctx context.Context, d time.Duration) error { return clock.Sleep(ctx, d) }

// dialer connects from somewhere.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// reach makes one attempt on a new connection, for 2 s at most.
func reach(ctx context.Context, dial dialer, network, target string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if network == "udp" {
		return exchangeUDP(ctx, dial, target)
	}
	return reachHTTP(ctx, dial, target)
}

// besideLanes dials from a client's namespace with source ports that no lane uses.
func besideLanes(client *topology.Namespace) dialer {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = client.Do(func() error {
			conn, err = probes.DialBesideLanes(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// reachHTTP makes one request on a new connection.
func reachHTTP(ctx context.Context, dial dialer, target string) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dial}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/hostname", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// exchangeUDP sends one datagram and waits for its answer.
func exchangeUDP(ctx context.Context, dial dialer, target string) error {
	conn, err := dial(ctx, "udp", target)
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("hostname")); err != nil {
		return err
	}
	n, err := conn.Read(make([]byte, 512))
	if err == nil && n == 0 {
		err = errors.New("an empty answer")
	}
	return err
}

// site is the client of the lanes.
type site struct {
	from client
	net  *topology.Network
	// procs starts a program for each request of a node; nil where the namespace is enough. Some proxies translate the connections of a
	// node's control group.
	procs *procs.Supervisor
}

func (s site) Reach(ctx context.Context, network, target string) error {
	if s.procs != nil && s.from.node != nil {
		return reachByProgram(ctx, func(spec procs.Spec) (*procs.Process, error) { return s.from.start(s.procs, spec) }, network, target)
	}
	return reach(ctx, besideLanes(s.from.Namespace), network, target)
}

// reachFrom makes a request of a node.
func (s site) reachFrom(ctx context.Context, node *topology.Node, target string) error {
	if s.procs != nil {
		return reachByProgram(ctx, func(spec procs.Spec) (*procs.Process, error) { return node.Start(s.procs, topology.GroupSystem, spec) }, "tcp", target)
	}
	return reachHTTP(ctx, node.DialContext, target)
}

func (s site) Hold(ctx context.Context, target string) (io.Closer, error) {
	return s.from.hold(ctx, target)
}

// overTimeout bounds an attempt over one node. A node without rules drops packets silently.
const overTimeout = time.Second

// Over goes to the Service's external address with the node as the next hop, or else to its node port, or else from the node
// itself to its cluster IP.
func (s site) Over(ctx context.Context, name string, f record.Family, svc *corev1.Service) error {
	node, err := s.net.Node(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, overTimeout)
	defer cancel()
	p := svc.Spec.Ports[0]
	at := func(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	via := func(ctx context.Context, network, address string) (net.Conn, error) {
		return balancer.DialVia(ctx, s.net, node, network, address)
	}
	if ip, has := f.Among(append(scenarios.IngressIPs(svc), svc.Spec.ExternalIPs...)...); has {
		return reachHTTP(ctx, via, at(ip, p.Port))
	}
	if p.NodePort != 0 {
		return reachHTTP(ctx, s.net.Balancer.DialContext, at(node.AddrOf(f).String(), p.NodePort))
	}
	ip, has := f.Among(append(svc.Spec.ClusterIPs, svc.Spec.ClusterIP)...)
	if !has {
		return fmt.Errorf("the Service %s has no cluster IP of %s", svc.Name, f)
	}
	return s.reachFrom(ctx, node, at(ip, p.Port))
}

// newSite is the lab as the scenario of a run uses it. The load balancer is offered only where the lanes go through it.
func newSite(offers scenarios.Offers, l *lab.Lab, from client, lanes *prober.Prober, r *recorder, now func() time.Duration) *scenarios.Site {
	var known scenarios.Faults = faults{l.Balancer}
	if !from.throughBalancer {
		known = prober.ReplyDrops{Prober: lanes}
	}
	s := scenarios.NewSite(site{from, l.Net, l.GroupClients()}, known)
	for _, c := range offers {
		switch c {
		case scenarios.RestartableProxies:
			s.OfferProxies(l.Proxies)
		case scenarios.PowerControl:
			s.OfferPower(l)
		case scenarios.NodeCommands:
			s.OfferCommands(l)
		case scenarios.PodLanes:
			s.OfferPodLanes(podLanes{l, lanes, now})
		case scenarios.Journal:
			s.OfferJournal(r)
		case scenarios.OwnLoadBalancer:
			if from.throughBalancer {
				s.OfferLoadBalancer(members{l})
			}
		case scenarios.ControllableAPI:
			s.OfferControlPlane(apiServer{l.Replay, l.Net.Nodes})
		default: // no code of the site belongs to it
			s.Offer(c)
		}
	}
	return s
}

// members is the membership of the lab's load balancer.
type members struct{ *lab.Lab }

func (m members) Members(service string) ([]string, bool) { return m.Balanced(service), true }

// podLanes probes the lab's pods at their own addresses.
type podLanes struct {
	lab   *lab.Lab
	lanes *prober.Prober
	now   func() time.Duration
}

func (p podLanes) ProbePods(ctx context.Context, like scenarios.LaneSpec, port int) (func() error, error) {
	return followPods(ctx, p.lab, prober.NewPods(ctx, p.lanes, like, port), p.now), nil
}

type faults struct{ b *balancer.Balancer }

func (f faults) Inject(ctx context.Context, s scenarios.FaultSpec) error {
	target, err := netip.ParseAddrPort(s.Target)
	if err != nil {
		return fmt.Errorf("the fault %s: %w", s.ID, err)
	}
	return f.b.Inject(ctx, balancer.Fault{ID: s.ID, Kind: s.Kind, Target: target, Protocol: s.Protocol, Node: s.Node,
		For: s.For, Lane: s.Lane, Control: s.Control})
}

// apiServer injects faults into the replay control plane. Only the proxies use the addresses of the nodes, so that kubelets,
// controllers and the load balancer are not affected.
type apiServer struct {
	server *replay.Server
	nodes  []*topology.Node
}

// scope matches the requests of a node's proxy. Unknown nodes match no client.
func (a apiServer) scope(node string) replay.Scope {
	i := slices.IndexFunc(a.nodes, func(n *topology.Node) bool { return n.Name == node })
	if i < 0 {
		return replay.Scope{Addr: netip.IPv4Unspecified()}
	}
	return replay.Scope{Addr: a.nodes[i].Addr}
}

func (a apiServer) Away(node string) (back func()) {
	return a.server.Fault(replay.Away{Addrs: []netip.Addr{a.scope(node).Addr}})
}

func (a apiServer) Cut(node string, expire bool) (ended []string) {
	ended = a.Watching(node)
	for _, resource := range ended {
		if expire {
			a.server.Fault(replay.ExpireNextWatch{Scope: replay.Scope{Addr: a.scope(node).Addr, Resource: resource}})
		}
	}
	a.server.Fault(replay.CutWatches{Scope: a.scope(node)})
	return ended
}

func (a apiServer) Delay(node string, by time.Duration) (lift func()) {
	return a.server.Fault(replay.DelayWatches{Scope: a.scope(node), By: by})
}

func (a apiServer) Lose(node, resource string, lost func(what string)) {
	a.server.Fault(replay.LoseNext{Scope: replay.Scope{Addr: a.scope(node).Addr, Resource: resource}, Lost: lost})
}

func (a apiServer) Watching(node string) (resources []string) {
	for _, w := range a.server.Watchers(a.scope(node)) {
		resources = append(resources, w.Resource)
	}
	return resources
}

func (a apiServer) Put(o k8s.Object) error {
	_, err := a.server.Apply(o)
	return err
}

// newProber starts the probe worker in the client's namespace.
func newProber(l *lab.Lab, from client, plan Plan, failed *failures, died func(error), recorder record.Recorder, now func() time.Duration) (*prober.Prober, error) {
	priority := "--fifo"
	if plan.Kernel == KernelHost { // a user namespace has no right to that one
		priority = "--short-turns"
	}
	cfg := prober.Config{Record: recorder, Now: now, Seed: plan.Seed, Client: from.name, Places: places(l.Net), Died: died}
	if from.outside {
		cfg.Sources, cfg.SpreadSeed, cfg.SpreadNodes = from.sources, l.Balancer.HashSeed(), len(l.Net.Nodes)
	} else {
		cfg.Limits = from.limits
	}
	if from.Namespace != l.Net.Client && from.Namespace != l.Net.Nodes[0].Namespace {
		cfg.Places = append(cfg.Places, placeOf(from.Namespace))
	}
	cfg.Begins, cfg.Measured = watchers(l, from, plan, failed)
	return prober.Start(cfg,
		func(in io.Reader, out io.Writer) (prober.Worker, error) {
			return from.start(l.Procs, procs.Spec{Name: "probe-worker", Path: Program, Args: []string{probes.WorkerName, priority},
				Env:   []string{"GOGC=off", "GOMEMLIMIT=128MiB"}, // as the runner's: see Run
				Stdin: in, Stdout: out})
		})
}

// watchers returns the callbacks of the prober: begins makes the observers of kernel tables watch the target of a lane, and
// measured stores failures, looks up their connections, and reports the progress.
func watchers(l *lab.Lab, from client, plan Plan, failed *failures) (begins func(lane uint16, target netip.AddrPort, protocol string), measured func(record.Attempt)) {
	servers := map[uint16]observers.ServiceAddress{}
	var mu sync.Mutex
	count := newConsole(nil).measurements(plan)
	begins = func(lane uint16, target netip.AddrPort, protocol string) {
		s := observers.ServiceAddress{Address: target, UDP: record.Datagrams(protocol), Clients: from.sourcesOf(target.Addr())}
		mu.Lock()
		servers[lane] = s
		mu.Unlock()
		if l.Tables != nil {
			l.Tables.Watch(s)
		}
	}
	// A balancer that terminates connections makes others to the nodes, of which attempts know nothing.
	passed := scenarios.BalancerKind.Of(plan.Parameters) != balancer.KindHAProxy
	measured = func(a record.Attempt) {
		count(a)
		if a.Class == record.OK {
			return
		}
		failed.add(a)
		if l.Tables != nil {
			l.Tables.AttemptFailed()
		}
		mu.Lock()
		s, known := servers[a.Lane]
		mu.Unlock()
		// The kernel forgets a connection whose only answer is a reset.
		if known && passed && a.Source.IsValid() && a.Class != record.Refused {
			l.Conntrack.Enqueue(observers.ConntrackQuery{Lane: a.Lane, Seq: a.Seq, Tuple: observers.Tuple{Source: a.Source, Target: s.Address, UDP: s.UDP}})
		}
	}
	return begins, measured
}

// places are the namespaces whose conntrack tables the probes fill.
func places(n *topology.Network) []probes.Namespace {
	all := []probes.Namespace{placeOf(n.Client), placeOf(n.Balancer)}
	for _, node := range n.Nodes {
		all = append(all, placeOf(node.Namespace))
	}
	return all
}

func placeOf(ns *topology.Namespace) probes.Namespace {
	return probes.Namespace{Name: ns.Name, CountConntrack: func() (n int, err error) {
		err = ns.Do(func() (inner error) { n, inner = probes.CountConntrack(); return inner })
		return n, err
	}}
}

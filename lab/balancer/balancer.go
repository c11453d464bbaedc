// Package balancer is the lab's external load balancer. It gives Services of type LoadBalancer an address, runs health
// checks of the nodes and forwards client traffic to them.
//
// Kind passthrough forwards packets unchanged and picks the node with a public hash function (record.PickNode). Kind
// haproxy runs HAProxy, which terminates connections.
//
// A Service has an external address of each family that it shares with the lab. Each has its own health checks, at the nodes'
// addresses of its family, and its own membership.
//
// Limits: it adds no finalizer and keeps no state between runs except the status of Services. It ignores Services with a
// loadBalancerClass, and without Config.AsCloud session affinity and source ranges.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Values of Config.Kind, Config.CheckTarget and Config.Flows.
const (
	KindPassthrough = "passthrough"
	KindHAProxy     = "haproxy"

	TargetAuto                = "auto"
	TargetHealthz             = "healthz"
	TargetHealthCheckNodePort = "healthCheckNodePort"
	TargetNodePort            = "nodePort"

	FlowsSticky = string(record.BalancerSticky)
	FlowsRehash = string(record.BalancerRehash)
)

// Config configures a load balancer. Zero values select the defaults.
type Config struct {
	Kind string // passthrough (default) or haproxy
	Net  *topology.Network
	// Client reaches the cluster. Its QPS limit delays only addresses in the status of Services, never forwarding.
	Client   kubernetes.Interface
	Recorder record.Recorder
	// Now returns the time since the start of the run.
	Now func() time.Duration
	// Seed of the hash that picks nodes; 0 means 1, because the kernel replaces a seed of 0 with a random one.
	Seed uint32

	// CheckTarget is the endpoint of health checks. auto (default) selects healthCheckNodePort for
	// externalTrafficPolicy Local, otherwise healthz. healthCheckNodePort falls back to healthz for a Service without
	// such a port. nodePort opens a connection to the node port of the Service's first TCP port.
	CheckTarget string
	Interval    time.Duration // between two checks of a node, default 5 s
	Fall        int           // consecutive failed checks until a node is down, default 3
	Rise        int           // consecutive passed checks until a node is up, default 1
	HealthzPort int           // of the proxy on each node, default 10256

	// Flows controls established flows when the membership changes: sticky (default) keeps the node, rehash picks a new
	// one as plain ECMP does. Passthrough only.
	Flows string
	// AsCloud applies sessionAffinity ClientIP, without its timeout, and loadBalancerSourceRanges, as load balancers of
	// clouds do. Else only the proxies apply them.
	AsCloud bool
	// Finalizers keeps the finalizer of the service controller on Services with an external address, and stops forwarding for a Service
	// when its deletion begins.
	Finalizers bool

	HAProxy string            // path of the program, default /usr/sbin/haproxy; haproxy only
	Procs   *procs.Supervisor // haproxy only
	Log     *slog.Logger      // default slog.Default()
}

// Balancer is a running external load balancer.
type Balancer struct {
	cfg    Config
	log    *slog.Logger
	path   forwarder
	faults *faultTable
	work   *workQueue
	status *announcer
	guard  *finalizers // nil without Config.Finalizers
	dial   dialer      // of health checks

	// The fields below are owned by the goroutine of Run.
	ctx      context.Context
	started  bool
	initial  map[string]*corev1.Service // received before both lists were complete
	pools    map[record.Family]*pool
	services map[frontend]*service
	pending  []waiting // for an address, oldest first
	members  map[string]*topology.Node
	checks   sync.WaitGroup
}

// forwarder forwards packets or connections from clients to nodes.
type forwarder interface {
	// set applies a table; new connections follow it once set returns.
	set(t table) error
	// remove stops forwarding a service.
	remove(t table) error
	// checksHealth reports whether the forwarder runs the health checks itself (haproxy). Such a forwarder starts with
	// every node up and posts each later change.
	checksHealth() bool
	// close removes everything that the forwarder created.
	close() error
}

// New creates a balancer and sets up its network namespace. Run starts the balancer and cleans the namespace up.
func New(cfg Config) (*Balancer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("making the external load balancer: %w", err)
	}
	b := newBalancer(cfg)
	b.dial = cfg.Net.Balancer.DialContext
	switch cfg.Kind {
	case KindPassthrough:
		b.path, err = newByFamily(cfg, newPassthrough)
	case KindHAProxy:
		b.path, err = newHAProxy(cfg, b.post, b.serverChanged)
	}
	if err != nil {
		return nil, fmt.Errorf("making the external load balancer: %w", err)
	}
	if b.faults, err = newFaultTable(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("making the external load balancer: %w", err), b.path.close())
	}
	return b, nil
}

func newBalancer(cfg Config) *Balancer {
	b := &Balancer{cfg: cfg, log: cfg.Log, status: newAnnouncer(cfg.Client, cfg.Log), work: newWorkQueue(),
		initial: map[string]*corev1.Service{}, pools: map[record.Family]*pool{}, services: map[frontend]*service{},
		members: map[string]*topology.Node{}}
	if cfg.Finalizers {
		b.guard = newFinalizers(cfg.Client, cfg.Log)
	}
	for _, p := range cfg.Net.Plans() {
		b.pools[p.Family] = newPool(p.External)
	}
	return b
}

// Run creates a balancer and runs it until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	b, err := New(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// Run serves until ctx ends, which is not an error, and removes what New created. It can be called once.
//
// Run returns an error as soon as forwarding cannot be changed, because the record would no longer match the
// forwarding.
func (b *Balancer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	b.ctx = ctx
	var helpers sync.WaitGroup
	helpers.Go(func() { b.watch(ctx) })
	helpers.Go(func() { b.status.run(ctx) })
	if b.guard != nil {
		helpers.Go(func() { b.guard.run(ctx) })
	}
	err := b.work.serve(ctx)
	cancel()
	b.checks.Wait()
	helpers.Wait()
	if b.faults != nil {
		err = errors.Join(err, b.faults.close())
	}
	if err = errors.Join(err, b.path.close()); err != nil {
		return fmt.Errorf("running the external load balancer: %w", err)
	}
	return nil
}

// HashSeed returns the seed of the hash that picks nodes (record.FlowHash), or 0 for HAProxy, which picks them
// round-robin.
func (b *Balancer) HashSeed() uint32 {
	if b.path.checksHealth() {
		return 0
	}
	return b.cfg.Seed
}

// post queues f for the goroutine of Run. An error from f ends Run.
func (b *Balancer) post(f func() error) { b.work.post(f) }

func (c Config) withDefaults() (Config, error) {
	c.Kind, c.CheckTarget, c.Flows = or(c.Kind, KindPassthrough), or(c.CheckTarget, TargetAuto), or(c.Flows, FlowsSticky)
	c.Interval, c.Fall, c.Rise = or(c.Interval, 5*time.Second), or(c.Fall, 3), or(c.Rise, 1)
	c.HealthzPort, c.Seed, c.HAProxy = or(c.HealthzPort, 10256), or(c.Seed, 1), or(c.HAProxy, "/usr/sbin/haproxy")
	c.Log = or(c.Log, slog.Default())
	return c, errors.Join(
		oneOf("kind", c.Kind, KindPassthrough, KindHAProxy),
		oneOf("check target", c.CheckTarget, TargetAuto, TargetHealthz, TargetHealthCheckNodePort, TargetNodePort),
		oneOf("flows", c.Flows, FlowsSticky, FlowsRehash),
		c.check())
}

func (c Config) check() error {
	switch {
	case c.Net == nil || c.Client == nil || c.Recorder == nil || c.Now == nil:
		return errors.New("Config.Net, Client, Recorder and Now are required")
	case c.Interval < time.Millisecond || c.Fall < 1 || c.Rise < 1:
		return fmt.Errorf("health checks every %s, fall %d, rise %d: the minimum is 1ms, 1 and 1", c.Interval, c.Fall, c.Rise)
	case c.Kind == KindHAProxy && c.Procs == nil:
		return errors.New("kind haproxy requires Config.Procs, which starts HAProxy")
	case c.Kind == KindHAProxy && c.Flows == FlowsRehash:
		return errors.New("flows rehash requires kind passthrough: with haproxy a connection always keeps its node")
	}
	return nil
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func oneOf(what, word string, words ...string) error {
	if slices.Contains(words, word) {
		return nil
	}
	return fmt.Errorf("%s %q is not known; give one of %s", what, word, strings.Join(words, ", "))
}

// Package balancer is the lab's external load balancer: it gives Services of type LoadBalancer an address, checks the
// health of the nodes and forwards what clients send. Two kinds exist: passthrough (nothing terminates between client
// and node, and the choice of the node is a function that anyone can compute) and haproxy (the real HAProxy).
//
// It is not a cloud provider: it adds no finalizer, keeps no state between two runs but what it finds in the status of
// Services, ignores session affinity and source ranges, knows IPv4 only, and leaves Services with a loadBalancerClass
// to others.
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

// The words that Config takes.
const (
	KindPassthrough = "passthrough"
	KindHAProxy     = "haproxy"

	TargetAuto                = "auto"
	TargetHealthz             = "healthz"
	TargetHealthCheckNodePort = "healthCheckNodePort"
	TargetNodePort            = "nodePort"

	FlowsSticky = "sticky"
	FlowsRehash = "rehash"
)

// Config says what the balancer is and where it lives. Zero values mean the defaults that are named here.
type Config struct {
	Kind string // passthrough (default) or haproxy
	Net  *topology.Network
	// Client reaches the cluster. Its QPS limit delays only addresses in the status of Services, never forwarding.
	Client   kubernetes.Interface
	Recorder record.Recorder
	// Now is the time since the start of the run, on the clock of the history.
	Now func() time.Duration
	// Seed of the hash that chooses nodes. The kernel takes 0 as "make one up", so 0 stands for 1.
	Seed uint32

	// CheckTarget is where health is asked: auto (default: healthCheckNodePort for externalTrafficPolicy Local, healthz
	// otherwise), healthz, healthCheckNodePort (Services without one are asked at healthz) or nodePort (the port of the
	// first TCP port of the Service accepts a connection, as classic cloud balancers did).
	CheckTarget string
	Interval    time.Duration // between two checks of a node, default 5 s
	Fall        int           // failed checks in a row that take a node out, default 3
	Rise        int           // passed checks in a row that bring a node in, default 1
	HealthzPort int           // of the proxy on each node, default 10256

	// Flows says what an established flow does when the set of healthy nodes changes: sticky (default: it keeps its
	// node) or rehash (it is chosen anew, as plain ECMP does). Passthrough only.
	Flows string

	HAProxy string            // path of the program, default /usr/sbin/haproxy; haproxy only
	Procs   *procs.Supervisor // haproxy only
	Log     *slog.Logger      // default slog.Default()
}

// Balancer is one external load balancer.
type Balancer struct {
	cfg    Config
	log    *slog.Logger
	path   forwarder
	faults *faultTable
	mail   *mailbox
	status *announcer
	dial   dialer // of health checks

	// Below: owned by the goroutine of Run.
	ctx      context.Context
	begun    bool
	early    map[string]*corev1.Service // seen before both lists were complete
	pool     *pool
	services map[string]*service
	pending  []*corev1.Service // without an address, in the order in which they came
	members  map[string]*topology.Node
	checks   sync.WaitGroup
}

// forwarder moves packets or bytes from clients to nodes.
type forwarder interface {
	// set makes a service's forwarding what the table says. It returns when new connections follow it.
	set(t table) error
	// remove ends the forwarding of a service.
	remove(t table) error
	// judges reports whether the forwarder decides itself which nodes are healthy (haproxy). A forwarder that does takes
	// every node of a table as healthy when the table is set, and tells each later change with a posted function.
	judges() bool
	// close takes away everything that the forwarder made.
	close() error
}

// New makes a balancer and lays what its namespace needs. Call Run to start it; Run also takes all of it away.
func New(cfg Config) (*Balancer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("making the external load balancer: %w", err)
	}
	b := newBalancer(cfg)
	b.dial = cfg.Net.Balancer.DialContext
	switch cfg.Kind {
	case KindPassthrough:
		b.path, err = newPassthrough(cfg)
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
	return &Balancer{cfg: cfg, log: cfg.Log, status: newAnnouncer(cfg.Client, cfg.Log), mail: newMailbox(),
		early: map[string]*corev1.Service{}, pool: newPool(), services: map[string]*service{},
		members: map[string]*topology.Node{}}
}

// Run makes a balancer and runs it until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	b, err := New(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// Run serves until ctx ends, which is no error, and leaves its namespace as New found it. When forwarding cannot be
// changed it returns at once: a balancer whose table is not what it recorded would make every verdict wrong. Run can be
// called once.
func (b *Balancer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	b.ctx = ctx
	var helpers sync.WaitGroup
	helpers.Go(func() { b.watch(ctx) })
	helpers.Go(func() { b.status.run(ctx) })
	err := b.mail.serve(ctx)
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

// post has f called by the goroutine of Run, after everything that was posted before. An error ends Run.
// HashSeed is the seed of the hash that chooses nodes (record.FlowHash), or 0 when no such hash chooses: HAProxy counts.
func (b *Balancer) HashSeed() uint32 {
	if b.path.judges() {
		return 0
	}
	return b.cfg.Seed
}

func (b *Balancer) post(f func() error) { b.mail.post(f) }

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
		return errors.New("Net, Client, Recorder and Now must be given")
	case c.Interval < time.Millisecond || c.Fall < 1 || c.Rise < 1:
		return fmt.Errorf("checks every %s, fall %d, rise %d: give at least 1ms, 1 and 1", c.Interval, c.Fall, c.Rise)
	case c.Kind == KindHAProxy && c.Procs == nil:
		return errors.New("kind haproxy needs Procs, which starts its programs")
	case c.Kind == KindHAProxy && c.Flows == FlowsRehash:
		return errors.New("flows rehash is for kind passthrough: haproxy terminates connections, so a flow keeps its node")
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

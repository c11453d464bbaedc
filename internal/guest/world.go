package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/balancer"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

type clock struct{ now func() time.Duration }

func (c clock) Now() time.Duration { return c.now() }

func (c clock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announce tells of phases, steps and checkpoints on the console as they are recorded. Before a checkpoint is told, all
// attempts until then are in the region, where the host finds them.
type announce struct {
	*recorder
	say func(string)
}

func (a announce) Event(e reports.Event) {
	if e.Kind == reports.EventPhase || e.Kind == reports.EventStep {
		a.say(e.Text)
	}
	a.recorder.Event(e)
	if e.Object == scenarios.Checkpoint {
		a.recorder.flushAll()
		a.say(e.Text)
	}
}

// reach asks once, on a connection of its own, from the client's namespace.
func reach(ctx context.Context, client *topology.Namespace, network, target string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if network == "udp" {
		return reachUDP(ctx, client, target)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: client.DialContext}
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

// reachUDP sends one datagram and waits for its answer.
func reachUDP(ctx context.Context, client *topology.Namespace, target string) error {
	conn, err := client.DialContext(ctx, "udp", target)
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

type faults struct{ b *balancer.Balancer }

func (f faults) Inject(ctx context.Context, s scenarios.FaultSpec) error {
	target, err := netip.ParseAddrPort(s.Target)
	if err != nil {
		return fmt.Errorf("the fault %s: %w", s.ID, err)
	}
	return f.b.Inject(ctx, balancer.Fault{ID: s.ID, Kind: s.Kind, Target: target, Protocol: s.Protocol, Node: s.Node,
		For: s.For, Attrs: s.Attrs})
}

// apiServer does to the replay control plane what a scenario wants, as far as the proxies of the nodes see it. On the nodes
// nobody else has the nodes' addresses: kubelets, controllers and the balancer go on working.
type apiServer struct {
	server *replay.Server
	nodes  []*topology.Node
}

func (a apiServer) Away() (back func()) {
	var away replay.Away
	for _, n := range a.nodes {
		away.Addrs = append(away.Addrs, n.Addr)
	}
	return a.server.Fault(away)
}

func (a apiServer) Relist() (ended []string) {
	ended = a.Watching()
	for _, n := range a.nodes {
		for _, w := range a.server.Watchers(replay.Scope{Addr: n.Addr}) {
			a.server.Fault(replay.ExpireNextWatch{Scope: replay.Scope{Addr: n.Addr, Resource: w.Resource}})
		}
		a.server.Fault(replay.CutWatches{Scope: replay.Scope{Addr: n.Addr}})
	}
	return ended
}

func (a apiServer) Watching() (resources []string) {
	for _, n := range a.nodes {
		for _, w := range a.server.Watchers(replay.Scope{Addr: n.Addr}) {
			resources = append(resources, w.Resource)
		}
	}
	return resources
}

// prober runs lanes in the probe worker, a program of its own in the client's namespace.
type prober struct {
	record  reports.Recorder
	now     func() time.Duration
	orders  *probes.Orders
	input   io.Closer
	process *procs.Process
	read    chan error
	lanes   uint16
	spread  uint32 // probes.Lane.SpreadSeed
	nodes   int
	guards  *probes.Guards

	mu       sync.Mutex
	controls map[uint16]bool
	failures int // on measured lanes
}

func newProber(l *lab.Lab, plan Plan, record reports.Recorder, now func() time.Duration) (*prober, error) {
	in, orders := io.Pipe()
	attempts, out := io.Pipe()
	p := &prober{record: record, now: now, input: orders, read: make(chan error, 1), spread: l.Balancer.HashSeed(), nodes: len(l.Net.Nodes), controls: map[uint16]bool{}}
	limits, err := probes.LocalLimits()
	if err != nil {
		return nil, err
	}
	p.guards = probes.NewGuards(limits, places(l.Net), record.Event)
	priority := "--fifo"
	if plan.Kernel == KernelHost { // a user namespace has no right to that one
		priority = "--short-turns"
	}
	p.process, err = l.Procs.Start(procs.Spec{Name: "probe-worker", Path: Program, Args: []string{probes.WorkerName, priority},
		Env:   []string{"GOGC=off", "GOMEMLIMIT=128MiB"}, // as the runner's: see Run
		Enter: l.Net.Client.Enter, Stdin: in, Stdout: out})
	if err != nil {
		return nil, fmt.Errorf("starting the probe worker: %w", err)
	}
	go func() {
		<-p.process.Done()
		out.Close()
		in.Close()
	}()
	go func() { p.read <- p.copy(attempts) }()
	base, err := monotonicBase(now)
	if err != nil {
		return nil, err
	}
	p.orders, err = probes.NewOrders(orders, base, plan.Seed)
	return p, err
}

// monotonicBase is the start of the run on CLOCK_MONOTONIC, which all processes of one kernel share.
func monotonicBase(now func() time.Duration) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("reading the monotonic clock: %w", err)
	}
	return ts.Nano() - int64(now()), nil
}

func (p *prober) copy(attempts io.Reader) error {
	r := reports.NewAttemptReader(attempts)
	for {
		a, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the probe worker's attempts: %w", err)
		}
		p.record.Attempt(a)
		p.count(a)
		p.guards.Look(a.Start + a.Total)
	}
}

func (p *prober) count(a reports.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Class != reports.OK && !p.controls[a.Lane] {
		p.failures++
	}
}

// Failures is how many attempts on measured lanes have failed so far.
func (p *prober) Failures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures
}

// places are the namespaces whose conntrack the probes fill.
func places(n *topology.Network) []probes.Place {
	all := []probes.Place{placeOf(n.Client), placeOf(n.Balancer)}
	for _, node := range n.Nodes {
		all = append(all, placeOf(node.Namespace))
	}
	return all
}

func placeOf(ns *topology.Namespace) probes.Place {
	return probes.Place{Name: ns.Name, Tracked: func() (n int, err error) {
		err = ns.Do(func() (inner error) { n, inner = probes.TrackedHere(); return inner })
		return n, err
	}}
}

// lead is how far ahead of its first attempt a lane is ordered.
const lead = 200 * time.Millisecond

// delayedAfter is when an answer counts as delayed behind a balancer that terminates connections: the limit of the
// report that found the outages of kubernetes#85643.
const delayedAfter = 500 * time.Millisecond

// StartLane starts a lane; stop ends it.
func (p *prober) StartLane(ctx context.Context, s scenarios.LaneSpec) (stop func() error, err error) {
	target, err := netip.ParseAddrPort(s.Target)
	if err != nil {
		return nil, fmt.Errorf("lane %s: %w", s.Name, err)
	}
	p.lanes++
	p.mu.Lock()
	p.controls[p.lanes] = s.Control
	p.mu.Unlock()
	lane := probes.Lane{ID: p.lanes, Name: s.Name, Client: "client", Target: target, Rate: s.Rate, Host: s.Host,
		SourcePrefix: topology.ClientSources, Backends: s.Backends, Control: s.Control, Close: probes.CloseFIN, SpreadSeed: p.spread, SpreadNodes: p.nodes,
		Protocol: s.Protocol, Connections: s.Connections}.WithDefaults()
	if s.Terminated {
		lane.DelayedAfter = delayedAfter
	}
	if err := p.guards.Start(lane, p.now()); err != nil {
		return nil, err
	}
	begin := p.now() + lead
	e := lane.Event(begin)
	e.Attrs["service"], e.Attrs["local"] = s.Service, strconv.FormatBool(s.Local)
	if s.Partial {
		e.Attrs["partial"] = "true"
	}
	p.record.Event(e)
	if err := p.orders.Start(lane, begin); err != nil {
		return nil, err
	}
	if err := (clock{p.now}).Sleep(ctx, lead); err != nil {
		return nil, err
	}
	return func() error {
		p.guards.Stop(lane.ID)
		return p.orders.Stop(lane.ID, p.now())
	}, nil
}

// close ends the worker and waits until all its attempts are recorded.
func (p *prober) close() error {
	p.input.Close()
	err := <-p.read
	<-p.process.Done()
	if text := p.process.ExitText(); err == nil && text != "exit status 0" {
		err = fmt.Errorf("the probe worker ended with %s", text)
	}
	return err
}

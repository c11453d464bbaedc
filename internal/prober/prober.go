// Package prober runs the lanes of a scenario in a probe worker, in the lab's client namespace or on this machine. It
// connects scenarios and probes, and knows neither the lab nor a live cluster.
package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Config describes the client of the lanes and the record of their attempts.
type Config struct {
	Record record.Recorder
	Now    func() time.Duration // the run's clock, which must be CLOCK_MONOTONIC less a constant
	Seed   int64
	Client string // of the lanes; see probes.Lane
	// Sources are the ranges of source addresses, at most one of each family; SpreadSeed and SpreadNodes are those of each lane,
	// see probes.Lane.
	Sources     []netip.Prefix
	SpreadSeed  uint32
	SpreadNodes int
	Places      []probes.Namespace // the namespaces whose conntrack tables the attempts fill
	// Limits returns the limits of the worker's namespace; this process's when nil.
	Limits func() (probes.Limits, error)
	// Begins is called for each measured lane, Measured for each attempt on one, one at a time. Either may be nil.
	Begins   func(lane uint16, target netip.AddrPort, protocol string)
	Measured func(record.Attempt)
	// Died is called when the worker ends by itself, before Close. It may be nil.
	Died func(error)
}

// Worker is a running probe worker.
type Worker interface {
	Done() <-chan struct{} // closed when it has ended
	ExitText() string      // how it ended; "exit status 0" after an ordinary end
}

// Prober runs lanes. It is safe for concurrent use.
type Prober struct {
	cfg    Config
	orders *probes.Orders
	input  io.Closer
	worker Worker
	read   chan error
	guards *probes.Guards

	ordering sync.Mutex // serialises writes of orders

	mu       sync.Mutex
	lanes    map[string]uint16 // the id of each lane that runs, by its name
	last     uint16
	controls map[uint16]bool
	failures int // on measured lanes
	closing  bool
}

// Start starts a probe worker. The function connects the worker's orders and its attempts.
func Start(cfg Config, worker func(in io.Reader, out io.Writer) (Worker, error)) (*Prober, error) {
	if cfg.Limits == nil {
		cfg.Limits = probes.LocalLimits
	}
	limits, err := cfg.Limits()
	if err != nil {
		return nil, err
	}
	in, orders, err := os.Pipe() // a file: exec would notice the end of a program with another reader at its next order only
	if err != nil {
		return nil, fmt.Errorf("making the pipe of the probe worker's orders: %w", err)
	}
	attempts, out := io.Pipe()
	p := &Prober{cfg: cfg, input: orders, read: make(chan error, 1), lanes: map[string]uint16{}, controls: map[uint16]bool{}}
	p.guards = probes.NewGuards(limits, cfg.Places, cfg.Record.Event)
	if p.worker, err = worker(in, out); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the probe worker: %w", err), in.Close(), orders.Close())
	}
	go func() {
		<-p.worker.Done()
		out.Close()
		in.Close()
		p.tellDeath()
	}()
	go func() {
		err := p.record(attempts)
		_ = attempts.CloseWithError(err) // else a worker whose attempts cannot be read waits for ever; never fails
		p.read <- err
	}()
	base, err := monotonicBase(cfg.Now)
	if err == nil {
		p.orders, err = probes.NewOrders(orders, base, cfg.Seed, nil)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// tellDeath tells of a worker that has ended, unless Close ended it.
func (p *Prober) tellDeath() {
	p.mu.Lock()
	closing := p.closing
	p.mu.Unlock()
	if !closing && p.cfg.Died != nil {
		p.cfg.Died(fmt.Errorf("the probe worker ended with %s", p.worker.ExitText()))
	}
}

// monotonicBase is the start of the run on CLOCK_MONOTONIC, which all processes of one kernel share.
func monotonicBase(now func() time.Duration) (int64, error) {
	start, err := probes.Monotonic()
	return start - int64(now()), err
}

func (p *Prober) record(attempts io.Reader) error {
	r := record.NewAttemptReader(attempts)
	for {
		a, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the probe worker's attempts: %w", err)
		}
		p.cfg.Record.Attempt(a)
		p.count(a)
		p.guards.Check(a.Start + a.Total)
	}
}

func (p *Prober) count(a record.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.controls[a.Lane] {
		return
	}
	if a.Class != record.OK {
		p.failures++
	}
	if p.cfg.Measured != nil {
		p.cfg.Measured(a)
	}
}

// Failures is the number of failed attempts on measured lanes so far.
func (p *Prober) Failures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures
}

// lead is the time from the order of a lane, or of a fault on it, to its first attempt.
const lead = 200 * time.Millisecond

// delayedAfter is the time after which an answer counts as delayed behind a load balancer that terminates connections. The
// value is that of the report of kubernetes#85643.
const delayedAfter = 500 * time.Millisecond

// StartLane starts a lane; stop ends it.
func (p *Prober) StartLane(ctx context.Context, s scenarios.LaneSpec) (stop func() error, err error) {
	target, err := netip.ParseAddrPort(s.Target)
	if err != nil {
		return nil, fmt.Errorf("lane %s: %w", s.Name, err)
	}
	lane := probes.Lane{ID: p.register(s), Name: s.Name, Client: p.cfg.Client, Target: target, Rate: s.Rate, Host: s.Host,
		SourcePrefix: p.cfg.sources(target.Addr()), Backends: s.Backends, Control: s.Control, Close: s.Close, Policy: s.Policy,
		Protocol: s.Protocol, Connections: s.Connections, Lasts: s.Lasts}.WithDefaults()
	if lane.Policy == probes.PolicyFresh && s.Node == "" {
		lane.SpreadSeed, lane.SpreadNodes = p.cfg.SpreadSeed, p.cfg.SpreadNodes
	}
	if lane.KeepsConnections() {
		lane.Fresh = p.registerControl()
	}
	if s.Terminated {
		lane.DelayedAfter = delayedAfter
	}
	if err := p.guards.Start(lane, p.cfg.Now()); err != nil {
		return nil, err
	}
	lane.Role = s.Role
	begin := p.cfg.Now() + lead
	for _, e := range lane.Events(begin) {
		body := e.Body.(record.Lane)
		body.Service, body.Local, body.Node, body.Pod, body.Partial = s.Service, s.Local, s.Node, s.Pod, s.Partial
		e.Body = body
		p.cfg.Record.Event(e)
	}
	if err := p.send(func() error { return p.orders.Start(lane, begin) }); err != nil {
		return nil, err
	}
	if p.cfg.Begins != nil && !s.Control {
		p.cfg.Begins(lane.ID, target, s.Protocol)
	}
	if err := clock.Sleep(ctx, lead); err != nil {
		return nil, err
	}
	return func() error {
		p.guards.Stop(lane.ID)
		return p.send(func() error { return p.orders.Stop(lane.ID, p.cfg.Now()) })
	}, nil
}

// sources is the range of the family of a target; not valid where the kernel chooses.
func (c Config) sources(target netip.Addr) netip.Prefix {
	for _, s := range c.Sources {
		if record.FamilyOf(s.Addr()) == record.FamilyOf(target) {
			return s
		}
	}
	return netip.Prefix{}
}

// send writes an order to the worker.
func (p *Prober) send(write func() error) error {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	return write()
}

// register gives a lane its number.
func (p *Prober) register(s scenarios.LaneSpec) uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.controls[p.last], p.lanes[s.Name] = s.Control, p.last
	return p.last
}

// registerControl gives a number to a control lane of another lane.
func (p *Prober) registerControl() uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.controls[p.last] = true
	return p.last
}

// Close ends the worker and waits until all its attempts are recorded.
func (p *Prober) Close() error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.input.Close()
	err := <-p.read
	<-p.worker.Done()
	if text := p.worker.ExitText(); err == nil && text != "exit status 0" {
		err = fmt.Errorf("the probe worker ended with %s", text)
	}
	return err
}

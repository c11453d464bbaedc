package prober

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// Pods keeps a lane to the own address of each ready endpoint of a Service. It is a recorder of events, to which somebody
// tells the changes of endpoints; a lane lasts as long as its endpoint is ready. Safe for concurrent use.
type Pods struct {
	prober *Prober
	like   scenarios.LaneSpec
	port   int

	mu      sync.Mutex
	ctx     context.Context
	stops   map[string]func() error // of the lanes that run, by the endpoint's address
	started map[string]int          // how often there was a lane to a pod
	err     error
}

// NewPods makes one that starts lanes like the given one, to the port, for the endpoints of the lane's Service.
func NewPods(ctx context.Context, p *Prober, like scenarios.LaneSpec, port int) *Pods {
	return &Pods{prober: p, like: like, port: port, ctx: ctx, stops: map[string]func() error{}, started: map[string]int{}}
}

// Attempt is nothing to it.
func (p *Pods) Attempt(reports.Attempt) {}

// Event starts a lane when an endpoint becomes ready, and ends it when it is no longer.
func (p *Pods) Event(e reports.Event) {
	if e.Kind != reports.EventEndpoint || e.Attrs["service"] != p.like.Service {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	address := e.Attrs["address"]
	stop, runs := p.stops[address]
	ready := e.Attrs["state"] == "ready"
	switch {
	case ready && !runs && p.err == nil && p.ctx.Err() == nil:
		p.keep(p.start(address, e.Attrs["pod"], e.Node))
	case !ready && runs:
		delete(p.stops, address)
		p.keep(stop())
	}
}

func (p *Pods) keep(err error) {
	if err != nil && p.ctx.Err() == nil {
		p.err = errors.Join(p.err, err)
	}
}

func (p *Pods) start(address, pod, node string) error {
	l := p.like
	p.started[pod]++
	l.Name, l.Pod, l.Node = "pod-"+pod, pod, node
	if n := p.started[pod]; n > 1 {
		l.Name += "-" + strconv.Itoa(n) // a name is used once in a record
	}
	l.Target = net.JoinHostPort(address, strconv.Itoa(p.port))
	stop, err := p.prober.StartLane(p.ctx, l)
	if err != nil {
		return fmt.Errorf("asking the pod %s at its own address: %w", pod, err)
	}
	p.stops[address] = stop
	return nil
}

// Close ends all lanes, and returns what went wrong with any.
func (p *Pods) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(p.stops)) {
		p.keep(p.stops[address]())
	}
	clear(p.stops)
	return p.err
}

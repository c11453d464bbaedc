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

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Pods runs a lane to the own address of each ready endpoint of a Service, as long as the endpoint is ready. It is a recorder
// that receives the changes of endpoints as events. Safe for concurrent use.
type Pods struct {
	prober *Prober
	like   scenarios.LaneSpec
	port   int

	mu      sync.Mutex
	ctx     context.Context
	stops   map[string]func() error // the running lanes, by the endpoint's address
	started map[string]int          // the number of lanes to a pod so far
	err     error
}

// NewPods returns a recorder that starts lanes like the given one, to the port, for the endpoints of the lane's Service.
func NewPods(ctx context.Context, p *Prober, like scenarios.LaneSpec, port int) *Pods {
	return &Pods{prober: p, like: like, port: port, ctx: ctx, stops: map[string]func() error{}, started: map[string]int{}}
}

// Attempt ignores attempts.
func (p *Pods) Attempt(record.Attempt) {}

// Event starts a lane when an endpoint becomes ready, and ends it when the endpoint is no longer ready.
func (p *Pods) Event(e record.Event) {
	endpoint, is := e.Body.(record.Endpoint)
	if !is || endpoint.Service != p.like.Service {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stop, runs := p.stops[endpoint.Address]
	ready := endpoint.State == record.EndpointReady
	switch {
	case ready && !runs && p.err == nil && p.ctx.Err() == nil:
		p.note(p.start(endpoint.Address, endpoint.Pod, e.Node))
	case !ready && runs:
		delete(p.stops, endpoint.Address)
		p.note(stop())
	}
}

func (p *Pods) note(err error) {
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
		return fmt.Errorf("probing the pod %s at its own address: %w", pod, err)
	}
	p.stops[address] = stop
	return nil
}

// Close ends all lanes and returns their errors.
func (p *Pods) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(p.stops)) {
		p.note(p.stops[address]())
	}
	clear(p.stops)
	return p.err
}

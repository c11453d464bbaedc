package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// FleetOptions are the probes in the cluster, in addition to those of this machine.
type FleetOptions struct {
	Workers    int  // pods of a Deployment; 0 for none, unless Everywhere
	Everywhere bool // one on each node that takes pods, by a DaemonSet
	OnHost     bool // in the network of their nodes
	Image      string
	Rate       float64 // attempts per second of each worker; 0 for 10
}

// timeWait is how long conntrack keeps a connection that has ended (the kernel's default of nf_conntrack_tcp_timeout_time_wait).
const timeWait = 120 * time.Second

const (
	fleetPort = 7707
	fleetRate = 10
	// fleetLane is the first lane of a worker; lower ones are of this machine.
	fleetLane = 1000
	// fleetEnd is how long the workers may take to end and to deliver their records, beyond the deadlines of an attempt.
	// fleetEndEach is added for each worker: a hundred are asked in a second, three times.
	fleetEnd     = 30 * time.Second
	fleetEndEach = 30 * time.Millisecond
)

func (f FleetOptions) wanted() bool { return f.Workers > 0 || f.Everywhere }

// check fills in defaults and returns a UsageError for options that contradict each other.
func (f *FleetOptions) check() error {
	switch {
	case !f.wanted() && (f.OnHost || f.Image != "" || f.Rate != 0):
		return Usagef("there is no fleet with these options; give --fleet N workers, or --fleet-everywhere")
	case !f.wanted():
		return nil
	case f.Everywhere && f.Workers > 0:
		return Usagef("--fleet %d and --fleet-everywhere: give either a number of workers, or one on each node", f.Workers)
	case f.Workers > 1000:
		return Usagef("--fleet %d: at most 1000 workers", f.Workers)
	case f.Image == "":
		return Usagef("a fleet needs an image with hitless that the cluster can pull; name it with --fleet-image")
	case f.Rate < 0 || f.Rate > 1000:
		return Usagef("--fleet-rate %v: each worker makes up to 1000 attempts a second", f.Rate)
	}
	if f.Rate == 0 {
		f.Rate = fleetRate
	}
	return nil
}

// fits returns a UsageError for a fleet that needs more nodes.
func (f FleetOptions) fits(nodes int) error {
	if f.OnHost && f.Workers > nodes {
		return Usagef("--fleet %d with --fleet-on-host: each worker takes port %d of its node, and %d nodes take pods; give at most as many workers, or --fleet-everywhere",
			f.Workers, fleetPort, nodes)
	}
	return nil
}

// touches describes what the fleet makes.
func (f FleetOptions) touches(nodes int) string {
	kind, where := fmt.Sprintf("a Deployment of %d probes", f.Workers), ""
	if f.Everywhere {
		kind = fmt.Sprintf("a DaemonSet of probes, on %d nodes", nodes)
	}
	if f.OnHost {
		where = " in the network of their nodes, for which the namespace has Pod Security privileged"
	}
	workers := f.Workers
	if f.Everywhere {
		workers = nodes
	}
	all := float64(workers) * f.Rate
	return fmt.Sprintf("it makes %s (%s)%s there, each with %v connections a second to the Service's cluster IP: %v in all, of which the conntrack tables "+
		"of the nodes with its pods hold up to %.0f", kind, f.Image, where, f.Rate, all, all*timeWait.Seconds())
}

// words are the options of the fleet, for the command and the parameters.
func (f FleetOptions) words() []string {
	if !f.wanted() {
		return nil
	}
	words := []string{"--fleet", fmt.Sprint(f.Workers)}
	if f.Everywhere {
		words = []string{"--fleet-everywhere"}
	}
	if f.OnHost {
		words = append(words, "--fleet-on-host")
	}
	return append(words, "--fleet-rate", fmt.Sprint(f.Rate), "--fleet-image", f.Image)
}

// fleetTransport reaches the workers through the API server.
type fleetTransport struct {
	cluster   *cluster.Cluster
	namespace string
}

// Workers are the pods that have started.
func (w fleetTransport) Workers(ctx context.Context) ([]fleet.Member, error) {
	pods, err := w.cluster.Workers(ctx, w.namespace)
	var all []fleet.Member
	for _, p := range pods {
		all = append(all, fleet.Member(p))
	}
	return all, err
}

// Send sends a request to a pod.
func (w fleetTransport) Send(ctx context.Context, worker string, r fleet.Request) ([]byte, error) {
	query := map[string]string{}
	for key, values := range r.Query() {
		query[key] = values[0]
	}
	body, err := w.cluster.CallWorker(ctx, w.namespace, worker, fleetPort, fleet.Path, query)
	if apierrors.IsNotFound(err) { // workers have no other paths, so the pod is missing
		return nil, fmt.Errorf("%w: %w", fleet.ErrGone, err)
	}
	return body, err
}

// fleetPodFilter records events of the fleet's own pods as log events: they serve nothing, so they cannot cause an outage.
type fleetPodFilter struct{ record.Recorder }

// Event records an event.
func (b fleetPodFilter) Event(e record.Event) {
	if e.Kind() == record.KindPod && strings.HasPrefix(e.Object, cluster.FleetName+"-") {
		e.Body = record.Log{Program: cluster.FleetName, Level: "info"}
	}
	b.Recorder.Event(e)
}

// fleetProber starts the run's fleet with the first lane that measures, and to the same Service.
type fleetProber struct {
	scenarios.Prober
	site   *Cluster
	record record.Recorder
	now    func() time.Duration

	collector *fleet.Collector
	wanted    int    // workers
	stop      func() // ends the collecting; nil before it began
}

// StartLane starts a lane, and the fleet before the first that measures.
func (p *fleetProber) StartLane(ctx context.Context, l scenarios.LaneSpec) (func() error, error) {
	if p.site.live.Fleet.wanted() && !l.Control && p.collector == nil {
		if err := p.begin(ctx, l); err != nil {
			return nil, fmt.Errorf("probes in the cluster: %w", err)
		}
	}
	return p.Prober.StartLane(ctx, l)
}

func (p *fleetProber) begin(ctx context.Context, l scenarios.LaneSpec) (err error) {
	r := p.site
	f := *r.live.Fleet
	address, err := r.cluster.ClusterAddress(ctx, r.namespace, l.Service)
	if err != nil {
		return err
	}
	lane := probes.Lane{ID: 1, Name: "fleet", Client: "cluster", Rate: f.Rate, Close: l.Close, Backends: l.Backends, Host: l.Host}
	if lane.Target, err = netip.ParseAddrPort(address); err != nil {
		return err
	}
	text, err := json.Marshal(lane)
	if err != nil {
		return err
	}
	wanted := f.Workers
	if f.Everywhere {
		wanted = len(r.facts.Nodes)
	}
	p.collector, err = fleet.New(fleet.Config{Transport: fleetTransport{r.cluster, r.namespace}, Record: p.record, Now: p.now, Lane: lane, Wanted: wanted,
		FirstLane: fleetLane, Service: l.Service})
	if err != nil {
		return err
	}
	p.wanted = wanted
	p.step(record.StepBegin, nil)
	err = r.cluster.MakeFleet(ctx, r.namespace, cluster.Fleet{Workers: f.Workers, Image: f.Image, HostNetwork: f.OnHost, Port: fleetPort, PathAlive: fleet.PathAlive,
		Args: []string{fleet.WorkerName, fmt.Sprintf("--listen=:%d", fleetPort)}, Env: map[string]string{fleet.LaneVariable: string(text)}})
	if err == nil {
		within, cancel := context.WithTimeoutCause(ctx, r.live.Patience, fmt.Errorf("not in %v", r.live.Patience))
		defer cancel()
		err = p.collector.Begin(within)
	}
	if err != nil {
		p.step(record.StepFailed, err)
		return err
	}
	p.step(record.StepEnd, nil)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); p.collector.Run(running) }()
	p.stop = func() { cancel(); <-ended }
	return nil
}

func (p *fleetProber) step(state record.StepState, err error) {
	const name = "start the fleet"
	body := record.Step{State: state}
	if err != nil {
		body.Error = err.Error()
	}
	p.record.Event(record.Event{At: p.now(), Object: name, Text: name + ": " + string(state), Body: body})
}

// end collects the last records of the workers and records what is missing. A run that failed hardly waits.
func (p *fleetProber) end(ctx context.Context, failed error) {
	if p.collector == nil {
		return
	}
	if p.stop != nil {
		p.stop()
	}
	patience := probes.DefaultDialDeadline + probes.DefaultReplyDeadline + fleetEnd + time.Duration(p.wanted)*fleetEndEach
	if failed != nil {
		patience = 2 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errors.New("the run is over"))
	defer cancel()
	p.collector.Finish(ctx)
}

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hitless/hitless/record"
)

// The parameters of churn alone.
var (
	drainingPorts = newNumber("ports", "100", "ports of the Service whose pod drains, with connections open to each", 1, 1000)
	burstFrom     = newDuration("from", "150ms", "time from each full minute of the run to the first change", 0, 50*time.Second)
	rolloutEvery  = newNumber("rolloutEvery", "3", "minutes between two rollouts", 1, 10000)
)

// churn changes endpoints while a pod with open connections drains. kube-proxy's ipvs mode froze after some hours of
// that (kubernetes#71071). Rollouts of the measured Service show whether the proxies still follow.
func churn() Scenario {
	return Scenario{
		Name:    "churn",
		Summary: "changes endpoints around each full minute while a pod with open connections drains; rollouts show whether the proxies still follow",
		Parameters: []Parameter{
			ChurnFor.withDefault("1h").withHelp("longest time of the churn; it ends earlier when a rollout loses connections"),
			drainingPorts.Parameter,
			changeRate.Parameter,
			burstFrom.Parameter,
			burstFor.withHelp("duration of the changes in each minute"),
			rolloutEvery.Parameter,
			watchFor.withHelp("time that the proxies have to recover after a rollout lost connections, before they are restarted"),
			clusterPolicy,
			AntiAffinity.withDefault("off"),
			readinessPeriod.withDefault("30s"),
			shutdownDelay.withDefault("2s"),
			GracePeriod.withDefault("10s"),
			// kube-proxy's health check fails when it hangs, and a load balancer that removes the node would hide the
			// fault.
			CheckFall.withDefault("100"),
		},
		Steps: always([]string{"endpoints create", "endpoints set", "workload deploy", "client open", "pod unready", "expect unready", "proxy stop", "proxy start"}, rollSteps),
		Setup: func(p Params) Setup { return Setup{Least: ChurnFor.Of(p)} },
		Run:   func(ctx context.Context, w *World) error { return w.churn(ctx) },
	}
}

func (w *World) churn(ctx context.Context) error {
	busy := endpointRing{size: 4, family: w.Params.Family()}
	if err := w.Step(ctx, "deploy busy", "", func(ctx context.Context) error { return w.createBusyService(ctx, &busy) }); err != nil {
		return err
	}
	if err := w.drainSecondService(ctx, drainingPorts.Of(w.Params), 2*len(w.Nodes)-1); err != nil { // enough that a balancer gives most nodes one
		return err
	}
	end := w.Clock.Now() + ChurnFor.Of(w.Params)
	every := rolloutEvery.Of(w.Params)
	for minute := 1; w.Clock.Now() < end; minute++ {
		name := fmt.Sprintf("churn %d", minute)
		if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.burstAfterMinute(ctx, burstFrom.Of(w.Params), &busy) }); err != nil {
			return err
		}
		if w.Prober.Failures() > 0 { // since the last rollout: an attempt may take seconds to fail
			return w.restartAfterFailure(ctx)
		}
		if minute%every != 0 {
			continue
		}
		name = fmt.Sprintf("rollout %d", minute/every)
		if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.rollAndFollow(ctx) }); err != nil {
			return err
		}
	}
	if err := w.Clock.Sleep(ctx, failsWithin); err != nil || w.Prober.Failures() == 0 {
		return err
	}
	return w.restartAfterFailure(ctx)
}

// failsWithin is the time in which an attempt of the last rollout fails.
const failsWithin = 10 * time.Second

// createBusyService creates the Service whose endpoints change.
func (w *World) createBusyService(ctx context.Context, busy *endpointRing) error {
	return w.performVerb(ctx, "endpoints create", "busy", "addresses", busy.next())
}

// drainSecondService creates a Service with several ports, opens connections to each, and makes its pod unready. The pod
// drains as long as the connections are open.
func (w *World) drainSecondService(ctx context.Context, ports, each int) error {
	for _, step := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"deploy drained", func(ctx context.Context) error {
			return w.performVerb(ctx, "workload deploy", "drained", "replicas", "1", "policy", "Cluster", "gated", "on", "ports", strconv.Itoa(ports))
		}},
		{"open connections to drained", func(ctx context.Context) error {
			return w.performVerb(ctx, "client open", "drained", "each", strconv.Itoa(each))
		}},
		{"let drained become unready", func(ctx context.Context) error { return w.drain(ctx) }},
	} {
		if err := w.Step(ctx, step.name, "", step.do); err != nil {
			return err
		}
	}
	return nil
}

// burstAfterMinute changes endpoints at the given time after the next full minute of the run.
func (w *World) burstAfterMinute(ctx context.Context, from time.Duration, busy *endpointRing) error {
	return w.burst(ctx, (w.Clock.Now()-from).Truncate(time.Minute)+time.Minute+from, busy)
}

// burst changes endpoints from the given time on.
func (w *World) burst(ctx context.Context, at time.Duration, busy *endpointRing) error {
	for end := at + burstFor.Of(w.Params); at < end; at += time.Second / time.Duration(changeRate.Of(w.Params)) {
		if err := w.Clock.Sleep(ctx, max(0, at-w.Clock.Now())); err != nil {
			return err
		}
		if err := w.performVerb(ctx, "endpoints set", "busy", "addresses", busy.next()); err != nil {
			return err
		}
	}
	return nil
}

// restartAfterFailure gives the proxies time to recover, and then restarts one after the other. A proxy that cannot be
// restarted is recorded; the run stays valid, because its loss was measured before.
func (w *World) restartAfterFailure(ctx context.Context) error {
	err := w.Step(ctx, "watch", "", func(ctx context.Context) error { return w.Clock.Sleep(ctx, watchFor.Of(w.Params)) })
	if err != nil {
		return err
	}
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	for _, node := range w.Nodes {
		quiet, err := proxies.Quiet(node)
		if err != nil {
			return err
		}
		w.Recorder.Event(record.Event{At: w.Clock.Now(), Node: node, Object: "proxy",
			Text: fmt.Sprintf("the log of the proxy of %s has had no line for %.1f s", node, quiet.Seconds()),
			Body: record.Log{Program: "proxy", Quiet: new(quiet)}})
		w.tryStep(ctx, "restart the proxy of "+node, node, func(ctx context.Context) error { return w.restartProxy(ctx, node) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// manyPorts are n ports of a Service with one target port: a proxy programs each as a virtual server.
func manyPorts(n int) (ports []corev1.ServicePort) {
	for i := range n {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(port + i), TargetPort: intstr.FromInt32(httpPort), Protocol: corev1.ProtocolTCP})
	}
	return ports
}

// drain closes the gate of the pod with the open connections, which it goes on serving, and waits until the pod is
// unready.
func (w *World) drain(ctx context.Context) error {
	if err := w.performVerb(ctx, "pod unready", "drained#1"); err != nil {
		return err
	}
	return w.await(ctx, "unready", "drained#1", readinessWithin)
}

// endpointRing is the endpoints of a Service; each change removes one and adds one of each family. The addresses are from the
// documentation ranges (RFC 5737, RFC 3849) and get no traffic.
type endpointRing struct {
	size   int
	family record.Family
	first  int // number of the first, from 0
}

// next returns the current addresses, and advances.
func (r *endpointRing) next() string {
	var all []string
	for _, f := range r.family.Each() {
		for i := range r.size {
			all = append(all, record.Nth(ExternalIPs(f), (r.first+i)%250+1).String())
		}
	}
	r.first++
	return strings.Join(all, ",")
}

// heldConnections are idle connections that stay open.
type heldConnections []io.Closer

// all opens connections to each port of a workload, in each family. It waits for each port, because proxies program them one after the
// other.
func (h *heldConnections) all(ctx context.Context, w *World, k *workload, each int) error {
	for _, f := range w.families() {
		if err := h.allOf(ctx, w, k, f, each); err != nil {
			return err
		}
	}
	return nil
}

// allOf is all for one family.
func (h *heldConnections) allOf(ctx context.Context, w *World, k *workload, f record.Family, each int) error {
	host, _, err := net.SplitHostPort(k.targetFor(f, record.ProtocolNew))
	if err != nil {
		return fmt.Errorf("the target of %s: %w", k.name, err)
	}
	for _, p := range k.ports() {
		target := net.JoinHostPort(host, strconv.Itoa(int(p.Port)))
		for range each {
			err := w.Until(ctx, "a connection to "+target, time.Minute, func(ctx context.Context) (bool, string, error) {
				c, err := w.Site.client.Hold(ctx, target)
				if err == nil {
					*h = append(*h, c)
				}
				return err == nil, "", err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes the connections.
func (h *heldConnections) Close() error {
	var errs []error
	for _, c := range *h {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

package scenarios

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/hitless/hitless/record"
)

const (
	// RecoveryName is the name of the Service of the check, and of the step that fails when there is no check.
	RecoveryName = "recovery"
	// recoveryClass keeps the lab's load balancer from the Service: the check has its own path to each node.
	recoveryClass = "hitless.dev/recovery"
	// recoveryIP is the number of the external addresses of the Service, in ExternalIPs.
	recoveryIP = 3
)

// checkRecovery records whether each running proxy follows one more change: an endpoint of a new Service is added and
// removed. A proxy that does not follow within the parameter recoverWithin is a result; the error is for a check that could
// not be made.
func (w *World) checkRecovery(ctx context.Context) error {
	if RecoverWithin.Of(w.Params) == 0 {
		w.recordRecovery("", record.Recovery{State: record.RecoveryOff}, "not checked, because of "+w.Params.given(RecoverWithin.Parameter))
		return nil
	}
	nodes := w.runningProxies()
	if len(nodes) == 0 {
		return nil // the analysis tells
	}
	reached, err := w.changeEndpoint(ctx, nodes, w.recordRecovery)
	w.run.unrecovered = w.run.unrecovered || len(reached) < len(nodes)
	return w.failedCheck(err)
}

// failedCheck records a check that could not be made as a failed step.
func (w *World) failedCheck(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("checking whether the proxies follow a change: %w", err)
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: RecoveryName, Text: err.Error(), Body: record.Step{State: record.StepFailed, Error: err.Error()}})
	return err
}

// findPaths finds the nodes of a live cluster over which a Service can be reached before the scenario. Elsewhere the site
// has a path to each node.
func (w *World) findPaths(ctx context.Context) error {
	if RecoverWithin.Of(w.Params) == 0 || !w.Site.Offers().Has(SiteTargets) {
		return nil
	}
	reached, err := w.changeEndpoint(ctx, w.Nodes, func(string, record.Recovery, string) {})
	if err != nil {
		return w.failedCheck(err)
	}
	for _, node := range w.Nodes {
		w.state().unreached[node] = !slices.Contains(reached, node)
	}
	return nil
}

func (w *World) recordRecovery(node string, body record.Recovery, text string) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Node: node, Object: RecoveryName, Text: text, Body: body})
}

// runningProxies are the nodes whose proxies must follow changes. It records why the others are not among them.
func (w *World) runningProxies() (nodes []string) {
	proxies, err := w.proxies()
	known := err == nil
	for _, node := range w.Nodes {
		why := w.noRecovery(node)
		if why != "" {
			w.recordRecovery(node, record.Recovery{State: record.RecoveryUnchecked}, node+" was not checked: "+why)
			continue
		}
		if known {
			if _, err := proxies.Pid(node); err != nil {
				w.run.unrecovered = true
				w.recordRecovery(node, record.Recovery{State: record.RecoveryExited}, "the proxy of "+node+" has exited without a step of the scenario")
				continue
			}
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// noRecovery is the reason why a node's proxy need not follow changes; empty if it must.
func (w *World) noRecovery(node string) string {
	s := w.state()
	switch {
	case s.isDark(node):
		return "it has no power"
	case s.held[node] != "":
		return s.held[node]
	case s.blocked[node] != nil:
		return "the scenario still blocks its proxy"
	case s.apiReturns[node] != nil:
		return "the scenario keeps its proxy from the API server"
	case s.apiLifts[node] != nil:
		return "the scenario still delays the watches of its proxy"
	case s.unreached[node]:
		return "no Service could be reached over it before the scenario"
	}
	return ""
}

// changeEndpoint creates a Service with one endpoint, removes the endpoint, and deletes the Service. It tells of each node
// how it followed, and returns the nodes that followed both changes.
func (w *World) changeEndpoint(ctx context.Context, nodes []string, tell func(node string, body record.Recovery, text string)) ([]string, error) {
	pod, err := w.recoveryPod(ctx)
	if err != nil {
		return nil, err
	}
	h := &headless{name: RecoveryName, addresses: podIPs(pod), shape: w.shapeRecovery, slices: w.Site.Offers().Has(SiteTargets)}
	if err := h.create(ctx, w); err != nil {
		return nil, err
	}
	change := endpointChange{World: w, what: record.RecoveryAdded, begin: w.Clock.Now(), tell: tell}
	s, err := w.publish(ctx)
	if err == nil {
		nodes, err = change.followedBy(ctx, nodes, s)
	}
	if err == nil {
		h.addresses = nil
		err = h.update(ctx, w)
	}
	if err == nil {
		change.what, change.begin = record.RecoveryRemoved, w.Clock.Now()
		nodes, err = change.followedBy(ctx, nodes, s)
	}
	return nodes, errors.Join(err, h.delete(context.WithoutCancel(ctx), w))
}

// podIPs are the addresses of a pod, each once.
func podIPs(pod corev1.Pod) []string {
	all := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		if !slices.Contains(all, ip.IP) {
			all = append(all, ip.IP)
		}
	}
	return all
}

// recoveryPod is a ready pod of the canary, or else of the measured Service, on a node with power.
func (w *World) recoveryPod(ctx context.Context) (found corev1.Pod, err error) {
	err = w.Until(ctx, "a ready pod as the endpoint of the recovery check", RecoverWithin.Of(w.Params), func(ctx context.Context) (bool, string, error) {
		for _, k := range []*workload{w.run.canary, w.run.main} {
			pods, err := k.pods(ctx, w)
			if err != nil {
				return false, "", err
			}
			slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
			for _, pod := range pods {
				if podIsReady(pod) && pod.DeletionTimestamp == nil && pod.Status.PodIP != "" && !w.state().isDark(pod.Spec.NodeName) {
					found = pod
					return true, "", nil
				}
			}
		}
		return false, "no pod is ready", nil
	})
	return found, err
}

// shapeRecovery gives the Service of the check the kind of address that the lanes use. Over a load balancer that
// terminates connections, and on live clusters, that of the nodes is the node port.
func (w *World) shapeRecovery(s *corev1.ServiceSpec) {
	switch {
	case w.terminated() || w.Site.Offers().Has(SiteTargets) || w.Params.target() == toNodePort:
		s.Type = corev1.ServiceTypeNodePort
	case w.Params.target() == toClusterIP:
	case w.Params.target() == ToExternalIP:
		s.ExternalIPs = w.externalIPs(recoveryIP)
	default:
		s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new(recoveryClass)
	}
}

// publish waits until the Service has its addresses, writes the external one into the status of a Service of type
// LoadBalancer, and returns the Service.
func (w *World) publish(ctx context.Context) (*corev1.Service, error) {
	s := &corev1.Service{}
	err := w.Until(ctx, "the addresses of the Service "+RecoveryName, RecoverWithin.Of(w.Params), func(ctx context.Context) (bool, string, error) {
		err := w.Cluster.Get(ctx, RecoveryName, w.namespace(), s)
		return s.Spec.ClusterIP != "" && (s.Spec.Type != corev1.ServiceTypeNodePort || s.Spec.Ports[0].NodePort != 0), "it has none", err
	})
	if err != nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return s, err
	}
	var status corev1.LoadBalancerStatus
	for _, ip := range w.externalIPs(recoveryIP) {
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"loadBalancer": status}})
	if err != nil {
		return nil, err
	}
	if err := w.Cluster.PatchStatus(ctx, s, k8s.Patch{PatchType: types.MergePatchType, Data: data}); err != nil {
		return nil, fmt.Errorf("writing the address of the Service %s: %w", s.Name, err)
	}
	s.Status.LoadBalancer = status
	return s, nil
}

// endpointChange is a change that proxies must follow.
type endpointChange struct {
	*World
	what  record.RecoveryState // record.RecoveryAdded or record.RecoveryRemoved
	begin time.Duration
	tell  func(node string, body record.Recovery, text string)
}

// failuresInTurn are the failed requests, one after the other, that show that a node serves an endpoint no more. One can fail on its way.
const failuresInTurn = 3

// shows reports whether traffic over a node shows the change, in each family, and since when.
func (c endpointChange) shows(ctx context.Context, node string, s *corev1.Service) (since time.Duration, shows bool) {
	for _, f := range c.families() {
		requests := 1
		if c.what == record.RecoveryRemoved {
			requests = failuresInTurn
		}
		for request := range requests {
			if err := c.Site.client.Over(ctx, node, f, s); (err == nil) != (c.what == record.RecoveryAdded) {
				return 0, false
			}
			if request == 0 {
				since = c.Clock.Now() - c.begin
			}
		}
	}
	return since, true
}

// mostAttempts bounds the attempts at the same time.
const mostAttempts = 50

// followedBy waits until the Service answers over the nodes, or no longer does, and returns those that followed in time, in
// their order. Attempts over all nodes run at the same time.
func (c endpointChange) followedBy(ctx context.Context, nodes []string, s *corev1.Service) (followed []string, err error) {
	took := make([]time.Duration, len(nodes))
	limit := RecoverWithin.Of(c.Params)
	_ = c.Until(ctx, "the proxies to follow", limit, func(ctx context.Context) (bool, string, error) { // a proxy that does not is told below
		var all errgroup.Group
		all.SetLimit(mostAttempts)
		for i, node := range nodes {
			if took[i] > 0 {
				continue
			}
			all.Go(func() error {
				if since, shows := c.shows(ctx, node, s); shows && since <= limit {
					took[i] = max(1, since)
				}
				return nil
			})
		}
		_ = all.Wait() // no error
		return !slices.Contains(took, 0), "", ctx.Err()
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i, node := range nodes {
		if took[i] == 0 {
			waited := c.Clock.Now() - c.begin
			c.tell(node, record.Recovery{State: record.RecoveryFailed, Change: c.what, Took: waited},
				fmt.Sprintf("the proxy of %s did not follow within %.1f s when an endpoint was %s", node, waited.Seconds(), c.what))
			continue
		}
		followed = append(followed, node)
		c.tell(node, record.Recovery{State: c.what, Took: took[i]}, fmt.Sprintf("the proxy of %s followed within %.1f s when an endpoint was %s", node, took[i].Seconds(), c.what))
	}
	return followed, nil
}

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hitless/hitless/scenarios/timeline"
)

// policy changes the Service under traffic and changes it back. With a ready pod on each node no change removes an
// endpoint (kubernetes#101328 and #93858 are outages of this kind).
func policy() Scenario {
	return Scenario{
		Name:    "policy",
		Steps:   always([]string{"object patch", "expect balanced"}),
		Summary: "changes fields of the Service and changes them back: traffic policies, affinity, source ranges, ports, type",
		Parameters: []Parameter{
			laneParameters(),
			policyChanges().Parameter,
			policyRest.Parameter,
			Replicas.withDefault("3"),
			clusterPolicy.withHelp("externalTrafficPolicy of the Service before and after: Local or Cluster"),
		},
		Setup: func(p Params) Setup { return Setup{Lasts: time.Duration(2*len(p.changes())) * policyRest.Of(p)} },
		Run: func(ctx context.Context, w *World) error {
			for _, name := range w.Params.changes() {
				if err := w.changeService(ctx, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// policyChanges is a function because changes refers to parameters.
func policyChanges() TypedParameter[[]string] {
	return newList("changes", "all", "changes, in this order: all that are possible with the target, or some of "+strings.Join(changeNames(), ","), append(changeNames(), "all")...)
}

// policyRest is the time between two changes.
var policyRest = newDuration("between", "10s", "time between two changes", time.Second, time.Hour)

// change is a change of a Service's spec and its reversal; null removes a field.
type change struct {
	name   string
	at     []string // where lanes must go for the Service to have it, and to serve them meanwhile; empty for everywhere
	to     map[string]any
	back   map[string]any
	policy corev1.ServiceExternalTrafficPolicy // while it is changed; empty for the workload's own
}

// changes are the changes that cost no connection when each node has a pod of the Service.
func changes(s *corev1.Service) []change {
	own, other := s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyLocal
	if own == other {
		other = corev1.ServiceExternalTrafficPolicyCluster
	}
	kind := corev1.ServiceTypeLoadBalancer
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		kind = corev1.ServiceTypeNodePort
	}
	more := corev1.ServicePort{Name: "more", Port: port + 1, TargetPort: intstr.FromInt32(httpPort), Protocol: corev1.ProtocolTCP}
	return []change{
		{name: "externalTrafficPolicy", at: []string{toLoadBalancer, toNodePort}, to: map[string]any{"externalTrafficPolicy": other},
			back: map[string]any{"externalTrafficPolicy": own}, policy: other},
		{name: "internalTrafficPolicy", to: map[string]any{"internalTrafficPolicy": "Local"}, back: map[string]any{"internalTrafficPolicy": "Cluster"}},
		{name: "sessionAffinity", to: map[string]any{"sessionAffinity": "ClientIP"}, back: map[string]any{"sessionAffinity": "None", "sessionAffinityConfig": nil}},
		// Two halves of all addresses: the rules exist, and admit each client.
		{name: "loadBalancerSourceRanges", at: []string{toLoadBalancer}, to: map[string]any{"loadBalancerSourceRanges": []string{"0.0.0.0/1", "128.0.0.0/1"}},
			back: map[string]any{"loadBalancerSourceRanges": nil}},
		{name: "ports", to: map[string]any{"ports": append(slices.Clone(s.Spec.Ports), more)}, back: map[string]any{"ports": s.Spec.Ports}},
		// The other type adds what no lane uses; a Service of type LoadBalancer would lose its address.
		{name: "type", at: []string{toNodePort, toClusterIP, ToExternalIP}, to: map[string]any{"type": kind}, back: map[string]any{"type": s.Spec.Type}},
	}
}

func changeNames() []string {
	var names []string
	for _, c := range changes(&corev1.Service{}) {
		names = append(names, c.name)
	}
	return names
}

// changes are the names of the changes to make; all means those that the target allows.
func (p Params) changes() []string {
	names := policyChanges().Of(p)
	if !slices.Contains(names, "all") {
		return names
	}
	return slices.DeleteFunc(changeNames(), func(name string) bool { return p.checkChange(name) != nil })
}

// checkChange returns an error for a change that is not possible where the lanes go.
func (p Params) checkChange(name string) error {
	all, target := changes(&corev1.Service{}), p.target()
	i := slices.IndexFunc(all, func(c change) bool { return c.name == name })
	if i < 0 || len(all[i].at) == 0 || slices.Contains(all[i].at, target) {
		return nil
	}
	return fmt.Errorf("--set %s=%s with target=%s: a Service for that has no %s to change and put back without a loss; give target=%s",
		policyChanges().Key, name, target, name, strings.Join(all[i].at, " or target="))
}

// changeService makes one change and its reversal, with a pause after each.
func (w *World) changeService(ctx context.Context, name string) error {
	var before corev1.Service
	if err := w.Cluster.Get(ctx, w.run.main.name, w.namespace(), &before); err != nil {
		return fmt.Errorf("reading the Service: %w", err)
	}
	all := changes(&before)
	c := all[slices.IndexFunc(all, func(c change) bool { return c.name == name })]
	own := w.run.main.policy
	during := c.policy
	if during == "" {
		during = own
	}
	for _, half := range []struct {
		what   string
		spec   map[string]any
		policy corev1.ServiceExternalTrafficPolicy
	}{{"change " + name, c.to, during}, {"put back " + name, c.back, own}} {
		err := w.Step(ctx, half.what, "", func(ctx context.Context) error {
			if err := w.patchService(ctx, half.spec); err != nil {
				return err
			}
			if err := w.checkPort(ctx); err != nil {
				return err
			}
			return w.awaitBalanced(ctx)
		})
		if err != nil {
			return err
		}
		if err := w.Clock.Sleep(ctx, policyRest.Of(w.Params)); err != nil {
			return err
		}
	}
	return nil
}

// checkPort waits until the Service has a health check port exactly when it is of type LoadBalancer with policy Local.
func (w *World) checkPort(ctx context.Context) error {
	return w.Until(ctx, "a health check port for externalTrafficPolicy: Local and none for Cluster", time.Minute,
		func(ctx context.Context) (bool, string, error) {
			var s corev1.Service
			err := w.Cluster.Get(ctx, w.run.main.name, w.namespace(), &s)
			local := s.Spec.Type == corev1.ServiceTypeLoadBalancer && w.run.main.policy == corev1.ServiceExternalTrafficPolicyLocal
			return local == (s.Spec.HealthCheckNodePort != 0), fmt.Sprintf("%s with port %d", w.run.main.policy, s.Spec.HealthCheckNodePort), err
		})
}

// patchService changes fields of the measured Service's spec.
func (w *World) patchService(ctx context.Context, spec map[string]any) error {
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	return w.perform(ctx, timeline.Step{Verb: "object patch", Object: w.serviceName(), JSON: string(data)})
}

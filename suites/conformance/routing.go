package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/record"
)

// routingRun is the run of all checks of a family.
func routingRun(f routing.Family) *Run {
	return &Run{Name: "routing-" + string(f), Scenario: "routing", Set: set("family", string(f))}
}

// routings are the specs of routing: each case of package routing that is a promise, in each family.
var routings = sync.OnceValue(func() (all []Spec) {
	for _, family := range []routing.Family{routing.IPv4, routing.IPv6} {
		run := routingRun(family)
		cases := slices.Clone(routing.Cases)
		for _, change := range routing.Changes {
			cases = append(cases, change.Cases...)
		}
		for _, q := range cases {
			if q.Own || q.Both && family != routing.IPv4 {
				continue
			}
			s := Spec{Name: string(family) + " " + q.Name, Promise: promiseOf(q), Source: sourceOf(q), Level: levelOf(q), Kind: Routing, Family: Family(family),
				Features: q.Features, Run: run, Deviates: deviates(q), check: q.Name}
			if q.Both {
				s.Name, s.Family = "dual-stack "+q.Name, DualStack
			}
			all = append(all, s)
		}
	}
	return all
})

// promiseOf says in words what a case wants.
func promiseOf(q routing.Case) string {
	from := map[string]string{"c": "a pod", "a": "pod a", "node": "the node", "client": "a client outside", "stranger": "another client outside"}[q.Client]
	text := fmt.Sprintf("from %s to %s, ", from, q.Target)
	switch want := q.Promise(); want {
	case "refused", "dropped":
		text += "connections are " + want
	case routing.Blocked:
		text += "connections are refused or dropped"
	case "one":
		text += "one pod answers all connections"
	case "host":
		text += "the node's program answers"
	default:
		if _, health, is := strings.Cut(q.Target, "check!"); is {
			return fmt.Sprintf("the health check at port %s answers %s", health, want)
		}
		text += "exactly these pods answer: " + want
	}
	switch q.Source {
	case "itself":
		text += "; they see the client's address"
	case "node":
		if q.Want != q.Client { // a pod that answers itself is no pod of another node
			text += "; pods of other nodes see the node's address"
		}
	}
	return text
}

// sources are the sources of promises by feature. Of a case with several, the first one here is what the case is about.
var sources = []struct{ feature, source string }{
	{"terminating-endpoints", "EndpointConditions.serving and terminating (KEP-1669)"},
	{"health-check-node-port", "ServiceSpec.healthCheckNodePort"},
	{"source-ranges", "ServiceSpec.loadBalancerSourceRanges"},
	{"affinity", "ServiceSpec.sessionAffinity"},
	{"ip-mode", "LoadBalancerIngress.ipMode (KEP-1860)"},
	{"service-proxy-name", "label service.kubernetes.io/service-proxy-name (KEP-2447)"},
	{"traffic-distribution", "EndpointHints.forNodes (KEP-3015)"},
	{"hints", "EndpointHints.forZones (KEP-2433, KEP-4444)"},
	{"sctp", "ServicePort.protocol (KEP-614)"},
	{"udp", "ServicePort.protocol"},
	{"hairpin", e2e + "should allow pods to hairpin back to themselves through services"},
	{"host-isolation", "kubernetes#72236: a virtual address serves its ports, and no program of the node"},
	{"deletion", "ServiceSpec.clusterIP: the address of a deleted Service leads nowhere"},
	{"internal-policy-local", "ServiceSpec.internalTrafficPolicy (KEP-2086)"},
	{"external-policy-local", "ServiceSpec.externalTrafficPolicy"},
	{"policy-change", "ServiceSpec.type: it determines how the Service is exposed, and may change"},
	{"endpoints", "EndpointConditions.ready"},
	{"ports", "ServiceSpec.ports"},
	{"external-ip", "ServiceSpec.externalIPs"},
	{"node-port", "ServicePort.nodePort"},
	{"load-balancer", "ServiceStatus.loadBalancer"},
	{"cluster-ip", "ServiceSpec.clusterIP"},
}

// The sources of cases that their features do not tell.
const (
	e2e           = "kubernetes test/e2e/network/service.go: "
	noEndpoints   = e2e + "should be rejected when no endpoints exist"
	otherPrograms = "ServiceSpec.ports: the other ports of the node are not the Service's"
	sourceOfPods  = e2e + "should preserve source pod IP for traffic thru service cluster IP"
)

func sourceOf(q routing.Case) (source string) {
	for _, s := range slices.Backward(sources) {
		if slices.Contains(q.Features, s.feature) {
			source = s.source
		}
	}
	switch {
	case q.Promise() == "refused" && slices.Contains(q.Features, "endpoints"):
		source = noEndpoints
	case q.Want == "host":
		source = otherPrograms
	}
	// No API field promises the client's address without a policy Local.
	if q.Source == "itself" && !slices.Contains(q.Features, "external-policy-local") && !slices.Contains(q.Features, "internal-policy-local") {
		source += ", " + sourceOfPods
	}
	if q.Both {
		source += ", in each family of a dual-stack Service (KEP-563)"
	}
	return source
}

// optional are the features whose promises are extended.
var optional = []string{"hints", "traffic-distribution", "sctp", "ip-mode", "service-proxy-name", "host-isolation"}

// deviates reports whether the bundled proxier does otherwise than a case promises.
func deviates(q routing.Case) bool { return q.Promised != "" && q.Promised != routing.Blocked }

// levelOf is extended for optional features. A promise stays core where the bundled proxier breaks it.
func levelOf(q routing.Case) Level {
	if slices.ContainsFunc(q.Features, func(f string) bool { return slices.Contains(optional, f) }) {
		return Extended
	}
	return Core
}

// judgeCheck judges a routing spec by its check in the record.
func (s Spec) judgeCheck(h *record.History) (outcome, error) {
	for e, err := range h.Events() {
		if err != nil {
			return outcome{}, err
		}
		c, is := e.Body.(record.Check)
		if !is || e.Object != s.check {
			continue
		}
		switch {
		case c.Got == record.Unsupported:
			return outcome{State: Skipped, Reasons: []string{"this kernel cannot make the check: it has no SCTP"}}, nil
		case routing.Keeps(c):
			return outcome{State: Passed}, nil
		}
		text := fmt.Sprintf("from %s to %s: %s, want %s", c.Client, c.Target, c.Got, c.Want)
		if c.Source != "" && c.Seen != c.Source {
			text += fmt.Sprintf("; seen as %q, want %q", c.Seen, c.Source)
		}
		return outcome{State: Failed, Reasons: []string{text}}, nil
	}
	return outcome{State: Invalid, Reasons: []string{"the record has no check " + s.check}}, nil
}

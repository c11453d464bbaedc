package scenarios

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
)

// Invalid combinations of parameters are refused with advice, and all others are accepted.
func TestInvalidTargetCombinations(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"target=clusterIP", "no route to a cluster IP; give --set client=node or client=pod"},
		{"target=clusterIP trafficPolicy=Cluster", "give --set client=node or client=pod"},
		{"target=nodePort", "give --set trafficPolicy=Cluster"},
		{"target=externalIP client=pod", "give --set trafficPolicy=Cluster"},
		{"client=node", "give --set trafficPolicy=Cluster"},
		{"target=nodePort trafficPolicy=Cluster loadBalancer=haproxy", "leave loadBalancer out"},
		{"target=podIP", "loadBalancer, nodePort, externalIP, clusterIP"},
		{"client=moon", "outside, node, pod"},
		{"close=abort", "fin, rst"},
		{"reuse=3s", "from 5s to 1h"},
		{"reuse=soon", "from 5s to 1h"},
		{"reuse=10s lanes=tcp-new,udp-sticky", "a lane of udp-sticky keeps its five-tuple"},
		{"reuse=10s lanes=tcp-long", "a lane of tcp-long keeps its five-tuple"},

		{"", ""},
		{"target=loadBalancer client=outside trafficPolicy=Local", ""},
		{"target=clusterIP client=node", ""},
		{"target=clusterIP client=pod trafficPolicy=Local", ""},
		{"target=nodePort trafficPolicy=Cluster", ""},
		{"target=nodePort client=node trafficPolicy=Cluster", ""},
		{"target=externalIP trafficPolicy=Cluster", ""},
		{"client=pod trafficPolicy=Cluster", ""},
		{"close=rst reuse=5s lanes=tcp-new,udp-fresh", ""},
		{"reuse=0s lanes=tcp-long", ""},
		{"loadBalancer=haproxy close=rst", ""},
	} {
		set := map[string]string{}
		for word := range strings.FieldsSeq(c.set) {
			key, value, _ := strings.Cut(word, "=")
			set[key] = value
		}
		_, err := rollout().Fill(set)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("--set %s: %v", c.set, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("--set %s gave %v, want %q in it", c.set, err, c.want)
		}
	}
	if _, err := drain().Fill(map[string]string{"client": "node"}); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("a client on a node that can be drained: %v", err)
	}
	if _, err := flap().Fill(map[string]string{"target": "nodePort"}); err == nil {
		t.Error("a scenario with its own lanes accepted a target")
	}
}

// shaped returns the Service and the lane of a run of quiet with these parameters.
func shaped(t *testing.T, set map[string]string) (*corev1.Service, LaneSpec, *World) {
	t.Helper()
	params, err := quiet().Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	w := &World{Params: params, Rate: 100, Nodes: []string{"node-1", "node-2"},
		run: runState{main: &workload{name: "web", policy: corev1.ServiceExternalTrafficPolicy(params["trafficPolicy"]), targets: map[record.Family]target{record.IPv4: {tcp: "192.0.2.1:80"}}},
			canary: &workload{name: canaryName}}}
	return w.run.main.service(w), w.parameterLanes()[0], w
}

// Each target needs a type of Service that the API server accepts. Only lanes past the load balancer name their node.
func TestServicesHaveTargetsOfLanes(t *testing.T) {
	for target, want := range map[string]struct {
		kind   corev1.ServiceType
		policy corev1.ServiceExternalTrafficPolicy
		node   string
	}{
		"loadBalancer": {corev1.ServiceTypeLoadBalancer, "Cluster", ""},
		"nodePort":     {corev1.ServiceTypeNodePort, "Cluster", "node-1"},
		"externalIP":   {corev1.ServiceTypeClusterIP, "Cluster", "node-1"},
		"clusterIP":    {corev1.ServiceTypeClusterIP, "", "node-1"},
	} {
		set := map[string]string{"target": target, "trafficPolicy": "Cluster"}
		if target == "clusterIP" {
			set["client"] = "node"
		}
		s, lane, w := shaped(t, set)
		if s.Spec.Type != want.kind || s.Spec.ExternalTrafficPolicy != want.policy || lane.Node != want.node || w.Params.ThroughBalancer() != (want.node == "") {
			t.Errorf("%s: a Service of type %s with policy %q, lanes over %q", target, s.Spec.Type, s.Spec.ExternalTrafficPolicy, lane.Node)
		}
		if (len(s.Spec.ExternalIPs) == 1) != (target == "externalIP") {
			t.Errorf("%s: external IPs %v", target, s.Spec.ExternalIPs)
		}
	}
	_, _, w := shaped(t, map[string]string{"target": "externalIP", "trafficPolicy": "Cluster"})
	if a, b := (&workload{name: "web"}).service(w).Spec.ExternalIPs[0], (&workload{name: canaryName}).service(w).Spec.ExternalIPs[0]; a == b {
		t.Errorf("the two Services share the external IP %s", a)
	}
	_, lane, _ := shaped(t, map[string]string{"target": "clusterIP", "client": "pod"})
	if lane.Local {
		t.Error("a cluster IP has no local endpoints by externalTrafficPolicy, and the lane says so")
	}
}

// The parameters close and reuse apply to the lanes. Lanes that keep their five-tuple have no policy.
func TestLanesHaveCloseAndPolicyParameters(t *testing.T) {
	_, lane, w := shaped(t, map[string]string{"close": "rst", "reuse": "10s"})
	if lane.Close != "rst" || lane.Policy != "reuse:10s" {
		t.Errorf("close=rst reuse=10s makes the lane %+v", lane)
	}
	if canary := w.controlLane(record.IPv4, canaryName, record.ProtocolNew, w.run.main); canary.Policy != "" || canary.Close != "rst" {
		t.Errorf("the canary has policy %q and close %s, want fresh five-tuples and the close of the lane", canary.Policy, canary.Close)
	}
	if _, lane, _ = shaped(t, nil); lane.Close != "fin" || lane.Policy != "" {
		t.Errorf("by default the lane is %+v", lane)
	}
}

package conformance

import (
	"slices"
	"strings"
	"testing"
)

// KEP-1669 alone promises that terminating endpoints are used. A promise of hitless is none of the API.
func TestSpecsCiteTheSourceOfTheirFeatures(t *testing.T) {
	for _, s := range Catalog() {
		if is := slices.Contains(s.Features, "terminating-endpoints"); is != strings.Contains(s.Source, "KEP-1669") || strings.Contains(s.Source, "hitless") {
			t.Errorf("%s with the features %v cites %s", s.Name, s.Features, s.Source)
		}
	}
	for _, name := range []string{"scale-zero datagrams", "scale-zero-ipv6 datagrams"} {
		i := slices.IndexFunc(Catalog(), func(s Spec) bool { return s.Name == name })
		if source := Catalog()[i].Source; !strings.Contains(source, "UDP traffic") {
			t.Errorf("%s cites %s", name, source)
		}
	}
}

// The source of a spec of routing is that of what the spec is about, and not of a feature that it also uses.
func TestSpecsOfRoutingCiteTheirOwnSource(t *testing.T) {
	found := map[string]string{}
	for _, s := range routings() {
		if s.Family != IPv6 {
			found[s.check] = s.Source
		}
	}
	for check, want := range map[string]string{
		"policy Local, health":                                          "healthCheckNodePort",
		"policy Local without a local endpoint, health":                 "healthCheckNodePort",
		"policy Local without any endpoint, health":                     "healthCheckNodePort",
		"policy Local, local endpoint terminating and serving, health":  "KEP-1669",
		"internal policy Local, local endpoint terminating and serving": "KEP-1669",
		"policy Local without any endpoint":                             "no endpoints exist",
		"no endpoints, NodePort":                                        "no endpoints exist",
		"all endpoints removed":                                         "no endpoints exist",
		"one unready endpoint":                                          "no endpoints exist",
		"one ready endpoint, one unready":                               "EndpointConditions.ready",
		"zone hints, unready in this zone":                              "KEP-2433",
		"node hints for other nodes, zone hints":                        "KEP-3015",
		"policy Local, from a pod":                                      "externalTrafficPolicy",
		"policy changed to Cluster with source ranges":                  "loadBalancerSourceRanges",
		"type changed to ClusterIP, NodePort":                           "ServiceSpec.type",
		"pod to its own Service":                                        "hairpin",
		"program of the host, at a cluster IP":                          "kubernetes#72236",
		"program of the host":                                           "ServiceSpec.ports",
		"IPv6, NodePort":                                                "KEP-563",
		"port that the Service lacks":                                   "ServiceSpec.ports",
	} {
		if !strings.Contains(found[check], want) {
			t.Errorf("%s cites %q, want %q", check, found[check], want)
		}
	}
}

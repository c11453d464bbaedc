// Package conformance is a Ginkgo suite of what a Service proxy promises. It runs against any subject, in `hitless conformance` and as
// Go tests. A spec judges the record of a run; specs with the same run share it. The package neither probes nor starts a lab itself.
package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

// Level is how much of an implementation depends on a promise.
type Level string

// The levels. A core promise holds for every cluster; an extended one belongs to an optional feature, or to a rare disturbance.
const (
	Core     Level = "core"
	Extended Level = "extended"
)

// Kind is what a spec examines.
type Kind string

// The kinds of specs.
const (
	Routing    Kind = "routing"    // from API objects to packets, without a disturbance
	Disruption Kind = "disruption" // a scenario under traffic
	Cost       Kind = "cost"       // of one change, with few and with many other Services
)

// Family is the address family of a spec.
type Family string

// The families.
const (
	IPv4      Family = "ipv4"
	IPv6      Family = "ipv6"
	DualStack Family = "dual-stack"
)

// nightly labels specs that are too slow for a run of minutes.
const nightly = "nightly"

// Run is a run of hitless that gives evidence for specs.
type Run struct {
	Name     string // of its folder; unique
	Scenario string
	Set      map[string]string
	Rate     float64 // attempts per second and lane; 0 for none
	Nodes    int     // 0 for the default of hitless
	Nightly  bool
}

// Spec is one promise.
type Spec struct {
	Name     string // unique: the text of the Ginkgo spec, without its promise
	Promise  string // a sentence
	Source   string // where it is promised: an API field, a KEP or an issue
	Level    Level
	Kind     Kind
	Family   Family
	Features []string // at least one of features
	Run      *Run
	Needs    []string // labels of what the site must offer for the run
	// Deviates says that the bundled proxier breaks the promise, as docs/conformance.md explains.
	Deviates bool

	lanes   []string                        // of a disruption: protocols of the lanes that are judged, in each family of the run
	follows bool                            // of a disruption: the lanes may be lost for as long as followWithin
	also    judgement                       // of a disruption: what else holds for lanes that lost no more than accepted; nil for nothing
	instead judgement                       // of a disruption: what is judged in place of losses; nil for losses
	check   string                          // of routing: name of the check in the record
	cost    func(record.Cost) time.Duration // of cost: the cost that it judges
}

// Labels are the spec's labels in Ginkgo, for label filters.
func (s Spec) Labels() []string {
	labels := append([]string{string(s.Level), string(s.Kind), string(s.Family)}, s.Features...)
	labels = append(labels, s.Needs...)
	if s.Run.Nightly {
		labels = append(labels, nightly)
	}
	return labels
}

// Text is the text of the spec in Ginkgo: its name, its promise and where it is promised.
func (s Spec) Text() string { return textOf(s.Name, s.Promise, s.Source) }

func textOf(name, promise, source string) string {
	return fmt.Sprintf("%s: %s [%s]", name, promise, source)
}

// manyServices is the feature of specs with many other Services.
const manyServices = "many-services"

// features are the labels of features, each with its meaning.
var features = map[string]string{
	"cluster-ip":              "the cluster IP of a Service",
	"node-port":               "node ports",
	"load-balancer":           "addresses in the status of a Service of type LoadBalancer",
	"external-ip":             "spec.externalIPs",
	"external-policy-local":   "externalTrafficPolicy: Local",
	"internal-policy-local":   "internalTrafficPolicy: Local",
	"endpoints":               "ready, unready and missing endpoints",
	"terminating-endpoints":   "serving terminating endpoints (KEP-1669)",
	"affinity":                "sessionAffinity: ClientIP",
	"source-ranges":           "loadBalancerSourceRanges",
	"health-check-node-port":  "healthCheckNodePort",
	"hints":                   "topology hints of EndpointSlices",
	"traffic-distribution":    "hints for the same node (KEP-3015)",
	"proxy-terminating-nodes": "load balancer health of a node that is removed (KEP-3836)",
	"ip-mode":                 "ipMode of load balancer addresses (KEP-1860)",
	"service-proxy-name":      "the label service.kubernetes.io/service-proxy-name",
	"udp":                     "Services of UDP",
	"sctp":                    "Services of SCTP",
	"ports":                   "several and named ports",
	"hairpin":                 "a pod that calls its own Service",
	"host-isolation":          "programs of the node, which virtual addresses must not reach",
	"open-connections":        "connections that are open during a change",
	"removed-flows":           "flows to endpoints that were removed",
	"kept-flows":              "flows whose endpoints stay ready",
	"deletion":                "a Service that is deleted",
	"rollout":                 "rolling updates",
	"restart":                 "restarts of the proxy",
	"upgrade":                 "replacement of the proxy",
	"flap":                    "pods that become unready and ready again",
	"drain":                   "removal of nodes",
	"scale":                   "scaling, also to zero",
	"policy-change":           "changes of a Service's fields",
	"recreate":                "a Service that is deleted and created again",
	"api-outage":              "an API server that is away, or whose watches end",
	"interference":            "other programs that change the node's rules",
	"undisturbed":             "traffic without a disturbance",
	manyServices:              "a cluster with 2,000 other Services",
}

// labels are all labels that a spec can have.
func labels() []string {
	all := []string{string(Core), string(Extended), string(Routing), string(Disruption), string(Cost), string(IPv4), string(IPv6), string(DualStack), nightly}
	return slices.Concat(all, slices.Sorted(maps.Keys(features)), neededSomewhere())
}

// Catalog lists all specs in a fixed order.
func Catalog() []Spec { return slices.Clone(catalog()) }

var catalog = sync.OnceValue(func() []Spec {
	all := slices.Concat(routings(), disruptions(), costs())
	needs := map[*Run][]string{}
	for _, r := range runs(all) {
		needs[r] = needsOf(r)
	}
	for i := range all {
		all[i].Needs = needs[all[i].Run]
	}
	return all
})

// runs are the runs of specs, each once, in the order of the specs.
func runs(specs []Spec) (all []*Run) {
	for _, s := range specs {
		if !slices.Contains(all, s.Run) {
			all = append(all, s.Run)
		}
	}
	return all
}

// sentence ends a list of words for a message.
func sentence(words []string) string { return strings.Join(words, ", ") }

package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

// The lanes of disruptions: new connections, open ones, connections that are used again, and datagrams.
const (
	newLane    = "tcp-new"
	longLane   = "tcp-long"
	reusedLane = "http-reuse"
	freshLane  = "udp-fresh"
	stickyLane = "udp-sticky"
)

// The sources of promises that several disruptions share.
const (
	endpointsDoc = "EndpointConditions of discovery.k8s.io/v1: consumers route to ready endpoints"
	kep1669      = "KEP-1669: proxy terminating endpoints"
	kep3836      = "KEP-3836: improve kube-proxy ingress connectivity reliability"
	udpFlows     = "kubernetes test/e2e/network/conntrack.go: should be able to preserve UDP traffic when server pod cycles"
	keptFlows    = "kubernetes#122740, #126130: a restart of the proxy moves UDP flows, although their pods are ready"
	goneService  = "kubernetes#80403, #141371: a Service that was deleted still answers"
	emptyService = "kubernetes#139628: a UDP flow to a Service without endpoints goes to a pod that is gone"
)

// disruption is a scenario and what it promises. Each word of lanes gives a spec: the lanes of one word are judged together.
type disruption struct {
	run      Run
	level    Level
	promise  string // of new connections
	source   string
	features []string
	lanes    []string // words of laneWords, besides new
	fixed    bool     // the scenario itself chooses the lanes
}

// laneWords are the groups of lanes that disruptions name.
var laneWords = map[string]laneWord{
	"new":       {lanes: []string{newLane}},
	"open":      {lanes: []string{longLane}, promise: "open connections survive", features: []string{"open-connections"}},
	"reused":    {lanes: []string{reusedLane}, promise: "connections that clients use again survive", features: []string{"open-connections"}},
	"datagrams": {lanes: []string{freshLane, stickyLane}, promise: "datagrams are answered, of new and of old flows", features: []string{"udp"}},
	"fresh":     {lanes: []string{freshLane}, promise: "datagrams of new flows are answered", features: []string{"udp"}},
	flowsWord: {lanes: []string{stickyLane}, promise: "a flow of datagrams whose pod has ended is answered by another pod within 2 s", source: udpFlows,
		features: []string{"udp", "removed-flows"}},
	"kept": {lanes: []string{stickyLane}, promise: "a flow of datagrams stays with its pod while that is ready", source: keptFlows,
		features: []string{"udp", "kept-flows"}, also: Spec.judgeKept},
	"deleted": {lanes: []string{newLane, stickyLane}, promise: "a Service answers no connection and no datagram from 2 s after its deletion on", source: goneService,
		features: []string{"deletion", "udp"}, instead: Spec.judgeDeleted},
	"refused": {lanes: []string{stickyLane}, promise: "a Service without endpoints refuses datagrams of old flows as it refuses new connections", source: emptyService,
		features: []string{"removed-flows", "udp"}, instead: Spec.judgeRefused},
}

// laneWord is a group of lanes with what is promised about it.
type laneWord struct {
	lanes         []string
	promise       string
	source        string // empty for that of the disruption
	features      []string
	also, instead judgement // see Spec
}

// judgement judges the record of a spec's run. An error means that the record cannot be read.
type judgement func(Spec, *record.History) (outcome, error)

// removedFlows are the sources of promises about flows whose pods or Service are gone for a while, by the scenario.
var removedFlows = map[string]string{
	"scale":    udpFlows,
	"recreate": "kubernetes#91236: the flows of a Service that was created again reach its pods",
}

// flowsWord is the group of lanes whose loss may last as long as followWithin: a pod ends before the proxies learn of it.
const flowsWord = "flows"

// followWithin is the longest loss of a flow of datagrams whose pod has ended.
const followWithin = 2 * time.Second

// endingPods are the old pods of the rolling updates with specs of flows. Each of them can end while it serves the flow.
const endingPods = 2

// brief are settings of all runs: 10 s of traffic before and after the scenario.
var brief = map[string]string{"baseline": "10s", "settle": "10s"}

// disruptions are the specs of disruptions. A run has the lanes of all of its specs. Its budget is the loss that its parameters make
// unavoidable, and no other.
var disruptions = sync.OnceValue(func() (all []Spec) {
	runs := disruptionRuns()
	for _, d := range append(runs, inOtherFamilies(runs)...) {
		all = append(all, d.specs()...)
	}
	return all
})

// otherFamilies are the runs that are made in other families than IPv4 too. Those that are not nightly have lanes of every kind between
// them.
var otherFamilies = []struct {
	run     string
	family  record.Family
	nightly bool
}{
	{"quiet", record.IPv6, true},
	{"rollout-local", record.IPv6, false},
	{"rollout-cluster", record.IPv6, true},
	{"rollout-cluster-ip", record.IPv6, true},
	{"rollout-node-port", record.IPv6, true},
	{"restart-term", record.IPv6, false},
	{"restart-change", record.IPv6, true},
	{"drain", record.IPv6, true},
	{"scale-zero", record.IPv6, true},
	{"policy-external", record.IPv6, true},
	{"policy-internal", record.IPv6, true},
	{"rollout-local", record.DualStack, true},
	{"rollout-cluster", record.DualStack, true},
	{"restart-term", record.DualStack, true},
}

// familyWords are the families of specs, with the end of their promises.
var familyWords = map[record.Family]struct {
	family Family
	ending string
}{
	record.IPv4:      {IPv4, ""},
	record.IPv6:      {IPv6, ", over IPv6"},
	record.DualStack: {DualStack, ", in both families of a dual-stack Service"},
}

// inOtherFamilies are the runs of otherFamilies.
func inOtherFamilies(runs []disruption) (all []disruption) {
	for _, other := range otherFamilies {
		for _, d := range runs {
			if d.run.Name != other.run {
				continue
			}
			d.run.Set = maps.Clone(d.run.Set)
			d.run.Name += "-" + string(familyWords[other.family].family)
			d.run.Set["family"], d.run.Nightly = string(other.family), other.nightly
			all = append(all, d)
		}
	}
	return all
}

func (d disruption) specs() (all []Spec) {
	run := d.run
	run.Set = maps.Clone(brief)
	maps.Copy(run.Set, d.run.Set)
	if run.Rate == 0 {
		run.Rate = 50
	}
	words := append([]string{"new"}, d.lanes...)
	var lanes []string
	family := record.Family(cmp.Or(run.Set["family"], string(record.IPv4)))
	for i, word := range words {
		group := laneWords[word]
		promise, level := d.promise, d.level
		if i > 0 {
			promise = group.promise + " where " + d.run.about()
			if word != "open" {
				level = Extended
			}
		}
		for _, lane := range group.lanes { // two words can judge one lane
			if !slices.Contains(lanes, lane) {
				lanes = append(lanes, lane)
			}
		}
		source, features := d.sourceOf(word)
		all = append(all, Spec{Name: run.Name + " " + word, Promise: promise + familyWords[family].ending, Source: source, Level: level, Kind: Disruption,
			Family: familyWords[family].family, Features: features, Run: &run, lanes: group.lanes,
			follows: word == flowsWord, also: group.also, instead: group.instead})
		if run.Set["change"] == "ready" {
			all[len(all)-1].also = Spec.judgeReadied
		}
	}
	if len(d.lanes) > 0 && !d.fixed {
		run.Set["lanes"] = strings.Join(lanes, ",")
	}
	return all
}

// sourceOf returns where the promise about a group of lanes is made, and the features that it is about.
func (d disruption) sourceOf(word string) (source string, features []string) {
	features = slices.Concat(d.features, laneWords[word].features)
	if of := removedFlows[d.run.Scenario]; of != "" && word == "datagrams" {
		return of, append(features, "removed-flows")
	}
	return cmp.Or(laneWords[word].source, d.source), features
}

// about names the disturbance of a run.
func (r Run) about() string { return "the scenario " + r.Scenario + " runs" }

// set makes a map of keys and values in turn.
func set(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func disruptionRuns() []disruption {
	const restartSource = "kubernetes#75360, #73154: the first sync of a new process must not empty the tables"
	const apiSource = "EndpointSlice watch semantics: tables stay while the API server is away; 410 Gone means list again"
	const policySource = "ServiceSpec: these fields may change while the Service is in use"
	others := strconv.Itoa(manyOthers)
	withOpen := []string{"open", "reused", "datagrams"}
	return []disruption{
		{Run{Name: "quiet", Scenario: "quiet", Set: set("quietFor", "20s", "trafficPolicy", "Cluster", "replicas", "3")}, Core,
			"nothing is lost while nothing changes", endpointsDoc, []string{"undisturbed", "load-balancer"}, withOpen, false},
		{Run{Name: "rollout-local", Scenario: "rollout", Set: set("rollouts", "1", "shutdownDelay", "20s", "gracePeriod", "30s")}, Core,
			"a rolling update behind externalTrafficPolicy: Local loses no new connection", kep1669, []string{"rollout", "external-policy-local", "terminating-endpoints"}, []string{"fresh"}, false},
		{Run{Name: "rollout-cluster", Scenario: "rollout", Set: set("rollouts", "1", "trafficPolicy", "Cluster", "replicas", "2", "shutdownDelay", "5s", "gracePeriod", "10s")}, Core,
			"a rolling update behind externalTrafficPolicy: Cluster loses no new connection", endpointsDoc, []string{"rollout", "load-balancer"}, []string{"fresh", flowsWord}, false},
		{Run{Name: "rollout-node-port", Scenario: "rollout", Set: set("rollouts", "1", "trafficPolicy", "Cluster", "replicas", "2", "shutdownDelay", "5s", "gracePeriod", "10s", "target", "nodePort")}, Core,
			"a rolling update loses no new connection at a node port", endpointsDoc, []string{"rollout", "node-port"}, []string{"fresh", flowsWord}, false},
		{Run{Name: "rollout-cluster-ip", Scenario: "rollout", Set: set("rollouts", "1", "trafficPolicy", "Cluster", "replicas", "2", "shutdownDelay", "5s", "gracePeriod", "10s", "target", "clusterIP", "client", "pod")}, Core,
			"a rolling update loses no new connection of a pod to a cluster IP", endpointsDoc, []string{"rollout", "cluster-ip"}, []string{"fresh", flowsWord}, false},
		{Run{Name: "rollout-external-ip", Scenario: "rollout", Set: set("rollouts", "1", "trafficPolicy", "Cluster", "replicas", "2", "shutdownDelay", "5s", "gracePeriod", "10s", "target", "externalIP")}, Extended,
			"a rolling update loses no new connection at an external IP", endpointsDoc, []string{"rollout", "external-ip"}, nil, false},
		{Run{Name: "restart-term", Scenario: "restart", Set: set("trafficPolicy", "Cluster")}, Core,
			"a proxy that ends by SIGTERM and starts again loses no new connection", restartSource, []string{"restart"}, append(slices.Clone(withOpen), "kept"), false},
		{Run{Name: "restart-kill", Scenario: "restart", Set: set("signal", "KILL", "which", "all", "trafficPolicy", "Cluster")}, Core,
			"proxies that are killed at once and start again lose no new connection", restartSource, []string{"restart"}, []string{"open", "datagrams"}, false},
		{Run{Name: "restart-stop", Scenario: "restart", Set: set("signal", "STOP", "which", "all", "downtime", "10s", "trafficPolicy", "Cluster")}, Extended,
			"proxies that stand still for 10 s lose no new connection", restartSource, []string{"restart"}, []string{"open"}, false},
		{Run{Name: "restart-change", Scenario: "restart", Set: set("change", "on", "shutdownDelay", "15s", "trafficPolicy", "Cluster")}, Core,
			"a change of endpoints while the proxy restarts loses no new connection", restartSource, []string{"restart"}, []string{"fresh"}, false},
		// One of two pods is unready at a time, so that a node that does not use the other one refuses connections.
		{Run{Name: "restart-ready", Scenario: "restart", Set: set("change", "ready", "replicas", "2", "trafficPolicy", "Cluster"), Nodes: 2}, Extended,
			"a pod that becomes ready while the proxy restarts is used again", "kubernetes#92019", []string{"restart", "endpoints"}, nil, false},
		{Run{Name: "upgrade-itself", Scenario: "upgrade", Set: set("to", "itself", "trafficPolicy", "Cluster")}, Core,
			"the replacement of the proxy by itself, node by node, loses no new connection", restartSource, []string{"upgrade"}, []string{"open", "reused", "datagrams"}, false},
		{Run{Name: "upgrade-rollout", Scenario: "upgrade", Set: set("to", "itself", "roll", "on", "trafficPolicy", "Cluster", "replicas", "2", "shutdownDelay", "5s", "gracePeriod", "10s")}, Extended,
			"a rolling update after the replacement of the proxy loses no new connection", restartSource, []string{"upgrade", "rollout"}, nil, false},
		{Run{Name: "flap", Scenario: "flap", Set: set("flaps", "2", "watch", "70s", "openConnections", "8"), Rate: 10}, Core,
			"pods that become unready and ready again lose no new connection", "kubernetes#71515", []string{"flap", "endpoints"}, []string{"open"}, true},
		{Run{Name: "drain", Scenario: "drain", Set: set("off", "20s")}, Core,
			"the drain of a node loses no new connection", endpointsDoc, []string{"drain"}, []string{"fresh"}, false},
		{Run{Name: "drain-local", Scenario: "drain", Set: set("off", "20s", "trafficPolicy", "Local")}, Core,
			"the drain of a node behind externalTrafficPolicy: Local loses no new connection", kep1669, []string{"drain", "external-policy-local", "terminating-endpoints"}, nil, false},
		{Run{Name: "drain-scaledown", Scenario: "drain", Set: set("what", "scaledown", "off", "25s")}, Extended,
			"a node that the autoscaler removes leaves the load balancer before it is gone", kep3836, []string{"drain", "proxy-terminating-nodes"}, nil, false},
		{Run{Name: "drain-reboot", Scenario: "drain", Set: set("what", "reboot", "off", "40s"), Nightly: true}, Extended,
			"a node that reboots serves again when its proxy is healthy, and not before", kep3836, []string{"drain", "restart"}, nil, false},
		{Run{Name: "scale-zero", Scenario: "scale", Set: set("away", "10s")}, Core,
			"a Service that was scaled to zero serves as soon as a pod is ready", endpointsDoc, []string{"scale", "endpoints"}, []string{"datagrams", "refused"}, false},
		{Run{Name: "policy-external", Scenario: "policy", Set: set("changes", "externalTrafficPolicy", "between", "3s")}, Core,
			"a change of externalTrafficPolicy and back loses no new connection", policySource, []string{"policy-change", "external-policy-local"}, []string{"open"}, false},
		{Run{Name: "policy-internal", Scenario: "policy", Set: set("changes", "internalTrafficPolicy", "between", "3s", "target", "clusterIP", "client", "pod")}, Core,
			"a change of internalTrafficPolicy and back loses no new connection", policySource, []string{"policy-change", "internal-policy-local"}, []string{"open"}, false},
		{Run{Name: "policy-affinity", Scenario: "policy", Set: set("changes", "sessionAffinity", "between", "3s")}, Core,
			"a change of sessionAffinity and back loses no new connection", policySource, []string{"policy-change", "affinity"}, []string{"open"}, false},
		{Run{Name: "policy-ranges", Scenario: "policy", Set: set("changes", "loadBalancerSourceRanges", "between", "3s")}, Extended,
			"a change of loadBalancerSourceRanges that admits every client loses no new connection", policySource, []string{"policy-change", "source-ranges"}, []string{"open"}, false},
		{Run{Name: "policy-ports", Scenario: "policy", Set: set("changes", "ports", "between", "3s")}, Core,
			"another port that comes and goes loses no new connection", policySource, []string{"policy-change", "ports"}, []string{"open"}, false},
		{Run{Name: "policy-type", Scenario: "policy", Set: set("changes", "type", "between", "3s", "target", "nodePort")}, Extended,
			"a change of the type and back loses no new connection at the node port", policySource, []string{"policy-change", "node-port"}, nil, false},
		{Run{Name: "recreate", Scenario: "recreate", Set: set("away", "5s")}, Extended,
			"a Service that is created again with the same addresses serves 2 s later", e2e + "should work after the service has been recreated", []string{"recreate"}, nil, false},
		{Run{Name: "recreate-node-port", Scenario: "recreate", Set: set("away", "5s", "target", "nodePort")}, Extended,
			"a Service that is created again with the same node ports serves 2 s later", e2e + "should work after the service has been recreated", []string{"recreate", "node-port"}, []string{"datagrams", "deleted"}, false},
		{Run{Name: "api-away", Scenario: "api", Set: set("away", "40s", "relists", "0", "trafficPolicy", "Cluster", "shutdownDelay", "5s", "gracePeriod", "10s"), Rate: 20}, Core,
			"proxies without an API server keep serving, and follow the next change", apiSource, []string{"api-outage", "rollout"}, nil, false},
		{Run{Name: "api-relist", Scenario: "api", Set: set("away", "0s", "relists", "2", "trafficPolicy", "Cluster", "shutdownDelay", "5s", "gracePeriod", "10s")}, Core,
			"proxies whose watches expire follow the next change", apiSource, []string{"api-outage", "rollout"}, nil, false},
		{Run{Name: "api-delay", Scenario: "api", Set: set("away", "0s", "relists", "0", "delay", "10s", "trafficPolicy", "Cluster", "shutdownDelay", "15s", "gracePeriod", "25s")}, Extended,
			"a proxy that learns of changes late loses no new connection while the old pods serve", apiSource, []string{"api-outage", "endpoints"}, nil, false},
		{Run{Name: "others-rollout", Scenario: "rollout", Set: set("rollouts", "1", "trafficPolicy", "Cluster", "replicas", "2", "shutdownDelay", "5s", "gracePeriod", "10s", "others", others), Nightly: true}, Extended,
			"a rolling update among 2,000 other Services loses no new connection", endpointsDoc, []string{manyServices, "rollout"}, []string{"fresh"}, false},
		{Run{Name: "others-restart", Scenario: "restart", Set: set("trafficPolicy", "Cluster", "others", others), Nightly: true}, Extended,
			"a proxy that starts again and finds 2,000 other Services loses no new connection", restartSource, []string{manyServices, "restart"}, []string{"open"}, false},
		{Run{Name: "interference-flush", Scenario: "interference", Set: set("lasts", "20s", "trafficPolicy", "Cluster"), Nightly: true}, Extended,
			"a proxy whose rules another program flushed writes them again within 2 s", "kubernetes#81517: the reload of a firewall may delete the proxy's rules, which it writes again", []string{"interference"}, nil, false},
		{Run{Name: "interference-stale-allow", Scenario: "interference", Set: set("what", "stale-allow"), Nightly: true}, Extended,
			"a proxy leaves the rules of other programs alone", "KEP-3866: each program has its own tables, and leaves those of others alone", []string{"interference"}, nil, false},
	}
}

package scenarios

import (
	"errors"
	"slices"
	"strings"

	"github.com/hitless/hitless/scenarios/timeline"
)

// Capability is something that a site offers and a scenario can need. The set is closed.
type Capability int

// The capabilities.
const (
	RestartableProxies Capability = iota
	ProxyDaemonSet
	PowerControl
	NodeCommands
	ControllableAPI
	OwnLoadBalancer
	SameAddresses
	ClientPlacement
	PodLanes
	DatagramBackends
	MarkedChanges
	SiteTargets
	Journal
	ManyServices
	AddressFamilies
	NodeGroups
	OwnNodes
)

// capabilities describes each capability: its name, its meaning, and what a user does where a site lacks it.
var capabilities = map[Capability]struct{ name, meaning, advice string }{
	RestartableProxies: {"restartable proxies", "one proxy process a node, which hitless starts, stops, kills, freezes and replaces",
		"a live cluster decides which proxy runs and how"},
	ProxyDaemonSet: {"a DaemonSet of proxies", "a DaemonSet of the cluster runs the proxies, and its controller replaces its pods",
		"name a live cluster with --kubeconfig"},
	PowerControl:    {"power control of nodes", "hitless cuts the power of a node and boots it", "a live cluster has no such control"},
	NodeCommands:    {"commands on nodes", "hitless runs programs such as nft on a node, and sets its addresses and sysctls", "a live cluster runs no such programs for hitless"},
	ControllableAPI: {"a controllable control plane", "the API server of the proxies can be made unavailable, and end, expire or delay their watches", "give --controlplane replay: a real API server does not do such things on command"},
	OwnLoadBalancer: {"a load balancer of ours", "hitless runs the load balancer: its membership is known, and it injects faults between client and node",
		"a live cluster has its own load balancer: leave that out"},
	SameAddresses: {"stable Service addresses", "a Service that is created again gets the addresses and ports that it had",
		"the load balancer of a live cluster assigns new ones"},
	ClientPlacement:  {"clients in the cluster", "lanes can start on a node or in a pod, and go past the load balancer", "on a live cluster the flag --target, loadBalancer or nodePort, says where lanes go: leave that out"},
	PodLanes:         {"lanes to pods", "lanes can go to the own address of each pod", "leave that out"},
	DatagramBackends: {"backends for lanes of UDP", "the backends answer the datagrams of lanes", "agnhost on a live cluster answers otherwise: name lanes of TCP"},
	MarkedChanges:    {"marked changes", "changes of objects of the cluster carry an annotation, so that anyone can undo them", "name a live cluster with --kubeconfig"},
	SiteTargets:      {"targets of the site", "the site finds the address of a Service itself", "name a live cluster with --kubeconfig"},
	Journal:          {"a journal", "the site stores the timeline of the run while it happens", "run in a lab"},
	ManyServices:     {"room for other Services", "the cluster is hitless's own, so that it can have thousands of Services", "a live cluster has Services of its own: leave that out"},
	AddressFamilies: {"a choice of address families", "nodes, pods, Services and clients can have addresses of IPv4, of IPv6 or of both",
		"give --controlplane replay: a lab has IPv6 with that control plane, where its kernel has it; a live cluster has its own families: leave that out"},
	NodeGroups: {"control groups of nodes", "each node has a control group (version 2) with its pods, its proxy and its other programs",
		"give --kernel vm: a run in namespaces of this machine's kernel would leave groups behind when it is killed"},
	OwnNodes: {"nodes of its own", "hitless cordons a node and evicts its pods, and the node may stay like that",
		"`hitless run drain --kubeconfig FILE` drains a node of a live cluster, and puts it back"},
}

// stepsNeeding lists the steps without a verb that need a capability. The needs of verbs are in needOf.
var stepsNeeding = map[Capability][]string{
	RestartableProxies: {stepSecond},
	ProxyDaemonSet:     {stepRestartSet, stepUpgradeSet},
	NodeCommands:       {stepCommand},
	MarkedChanges:      {stepUndo, stepUpgradeSet},
}

// needsOf returns the capabilities that a step needs.
func needsOf(step string) (needs []Capability) {
	for _, c := range Capabilities() {
		if slices.Contains(stepsNeeding[c], step) {
			needs = append(needs, c)
		}
	}
	return append(needs, needOf[timeline.NeedOf(step)]...)
}

// Capabilities lists the closed set in a fixed order.
func Capabilities() []Capability {
	all := make([]Capability, 0, len(capabilities))
	for c := range Capability(len(capabilities)) {
		all = append(all, c)
	}
	return all
}

// String is the name of the capability.
func (c Capability) String() string { return capabilities[c].name }

// Meaning explains the capability in one clause.
func (c Capability) Meaning() string { return capabilities[c].meaning }

// Offers are the capabilities of a site.
type Offers []Capability

// Has reports whether the capability is offered.
func (o Offers) Has(c Capability) bool { return slices.Contains(o, c) }

// missing are the needed capabilities that are not offered, each once, in the order of the needs.
func (o Offers) missing(needs []Capability) (lacking []Capability) {
	for _, c := range needs {
		if !o.Has(c) && !slices.Contains(lacking, c) {
			lacking = append(lacking, c)
		}
	}
	return lacking
}

// lackError reports that a subject needs capabilities that the site does not offer.
type lackError struct {
	subject string // such as "scenario drain" or "--set target=nodePort"
	lacking []Capability
	others  []string // scenarios that the site can run; none where the subject is no scenario
}

func (e *lackError) Error() string {
	var parts []string
	for _, c := range e.lacking {
		parts = append(parts, c.String()+" ("+c.Meaning()+"), which this site does not offer: "+capabilities[c].advice)
	}
	text := e.subject + " needs " + strings.Join(parts, "; and ")
	if len(e.others) > 0 {
		text += "; the scenarios for this site are " + strings.Join(e.others, ", ")
	}
	return text
}

// CheckSubject returns an error that names the capabilities which a subject needs and the site does not offer.
func (o Offers) CheckSubject(name string, needs []Capability) error {
	if lacking := o.missing(needs); len(lacking) > 0 {
		return &lackError{subject: name, lacking: lacking}
	}
	return nil
}

// Lacking are the capabilities that a scenario or a setting needs and the site does not offer; none for other errors.
func Lacking(err error) []Capability {
	var lack *lackError
	if !errors.As(err, &lack) {
		return nil
	}
	return slices.Clone(lack.lacking)
}

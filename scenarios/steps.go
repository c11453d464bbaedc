package scenarios

import (
	"slices"

	"github.com/hitless/hitless/scenarios/timeline"
)

// Access is a verb that a scenario needs on a live cluster besides those of every run, as RBAC has it.
type Access struct {
	Verb, Group, Resource, Subresource string
	Scope                              Scope
}

// Scope is the part of a live cluster in which a verb is needed.
type Scope string

// The parts of a cluster.
const (
	InRun    Scope = ""      // the run's own namespace
	InProxy  Scope = "proxy" // the namespace of the cluster's proxy
	Anywhere Scope = "all"   // all namespaces, or none
)

// stepKind is what a step needs: capabilities of the site, and verbs of RBAC on a live cluster besides those of every run.
type stepKind struct {
	needs  []Capability
	access []Access
}

// The steps that a timeline has no verb for. A scenario that has one of them writes no timeline.
const (
	stepCordon     = "node cordon"
	stepEvict      = "node evict"
	stepUndo       = "node undo"
	stepCommand    = "node command"
	stepSecond     = "proxy second"
	stepRestartSet = "daemonset restart"
	stepUpgradeSet = "daemonset upgrade"
	stepRecovery   = "recovery check" // of every scenario; no part of its timeline
)

// proxyAccess are the verbs for changes of the DaemonSet of a live cluster's proxy.
var proxyAccess = []Access{{"get", "apps", "daemonsets", "", InProxy}, {"patch", "apps", "daemonsets", "", InProxy},
	{"list", "", "pods", "", InProxy}, {"watch", "", "pods", "", InProxy}}

// stepKinds are the steps that need more than the API of every run.
var stepKinds = map[string]stepKind{
	stepCordon: {access: []Access{{"patch", "", "nodes", "", Anywhere}}},
	stepEvict: {access: []Access{{"list", "", "pods", "", Anywhere}, {"create", "", "pods", "eviction", Anywhere},
		{"create", "policy", "poddisruptionbudgets", "", InRun}}},
	stepUndo:       {needs: []Capability{MarkedChanges}},
	stepCommand:    {needs: []Capability{NodeCommands}},
	stepSecond:     {needs: []Capability{RestartableProxies}},
	stepRestartSet: {needs: []Capability{ProxyDaemonSet}, access: proxyAccess},
	stepUpgradeSet: {needs: []Capability{ProxyDaemonSet, MarkedChanges}, access: proxyAccess},
	stepRecovery: {access: []Access{{"delete", "", "services", "", InRun}, {"create", "discovery.k8s.io", "endpointslices", "", InRun},
		{"update", "discovery.k8s.io", "endpointslices", "", InRun}, {"delete", "discovery.k8s.io", "endpointslices", "", InRun}}},
	"pod ready":      {access: []Access{{"patch", "", "pods", "status", InRun}}},
	"pod unready":    {access: []Access{{"patch", "", "pods", "status", InRun}}},
	"expect ready":   {access: []Access{{"get", "", "pods", "", InRun}}},
	"expect unready": {access: []Access{{"get", "", "pods", "", InRun}}},
	"object patch":   {access: []Access{{"patch", "", "services", "", InRun}}},
}

// needOf maps what a verb of a timeline needs to the capability.
var needOf = map[timeline.Need][]Capability{
	timeline.NeedsProxies: {RestartableProxies}, timeline.NeedsPower: {PowerControl}, timeline.NeedsControlPlane: {ControllableAPI},
	timeline.NeedsAddresses: {SameAddresses},
}

func stepKindOf(step string) stepKind {
	k := stepKinds[step]
	return stepKind{slices.Concat(k.needs, needOf[timeline.NeedOf(step)]), k.access}
}

// The steps that many scenarios share.
var (
	scaleSteps   = []string{"workload scale", "expect rolled-out", "expect balanced"}
	rollSteps    = []string{"workload rollout", "expect rolled-out", "expect balanced"}
	gateSteps    = []string{"pod unready", "expect unready", "pod ready", "expect ready"}
	upgradeSteps = []string{"proxy stop", "proxy cleanup", "proxy change", "proxy start"}
)

// always is the list of steps of a scenario that has the same ones with all parameters.
func always(lists ...[]string) func(Params) []string {
	return func(Params) []string { return slices.Concat(lists...) }
}

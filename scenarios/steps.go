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

// The steps that a timeline has no verb for. A scenario that has one of them writes no timeline.
const (
	stepLiveCordon = "live cordon" // `node cordon` on nodes that are not hitless's own
	stepLiveEvict  = "live evict"  // `node evict` on such nodes
	stepUndo       = "node undo"
	stepCommand    = "node command"
	stepSecond     = "proxy second"
	stepRestartSet = "daemonset restart"
	stepUpgradeSet = "daemonset upgrade"
)

// proxyAccess are the verbs for changes of the DaemonSet of a live cluster's proxy.
var proxyAccess = []Access{{"get", "apps", "daemonsets", "", InProxy}, {"patch", "apps", "daemonsets", "", InProxy},
	{"list", "", "pods", "", InProxy}, {"watch", "", "pods", "", InProxy}}

// stepAccess has the steps that need more on a live cluster than the verbs of every run.
var stepAccess = map[string][]Access{
	stepLiveCordon: {{"patch", "", "nodes", "", Anywhere}},
	stepLiveEvict: {{"list", "", "pods", "", Anywhere}, {"create", "", "pods", "eviction", Anywhere},
		{"create", "policy", "poddisruptionbudgets", "", InRun}},
	stepRestartSet:   proxyAccess,
	stepUpgradeSet:   proxyAccess,
	"pod ready":      {{"patch", "", "pods", "status", InRun}},
	"pod unready":    {{"patch", "", "pods", "status", InRun}},
	"expect ready":   {{"get", "", "pods", "", InRun}},
	"expect unready": {{"get", "", "pods", "", InRun}},
	"object patch":   {{"patch", "", "services", "", InRun}},
}

// needOf maps what a verb of a timeline needs to the capability.
var needOf = map[timeline.Need][]Capability{
	timeline.NeedsProxies: {RestartableProxies}, timeline.NeedsPower: {PowerControl}, timeline.NeedsControlPlane: {ControllableAPI},
	timeline.NeedsAddresses: {SameAddresses}, timeline.NeedsCommands: {NodeCommands}, timeline.NeedsOwnNodes: {OwnNodes},
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

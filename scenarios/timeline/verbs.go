package timeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/scenarios/values"
)

// All is the object of a step for every node.
const All = "all"

// Executor performs the steps of a timeline on a cluster. Each method is one action; the verbs differ in their arguments.
type Executor interface {
	ApplyObject(ctx context.Context, s Step) error
	PatchObject(ctx context.Context, s Step) error
	DeleteObject(ctx context.Context, s Step) error
	DeployWorkload(ctx context.Context, s Step) error
	RollWorkload(ctx context.Context, s Step) error
	ScaleWorkload(ctx context.Context, s Step) error
	CreateEndpoints(ctx context.Context, s Step) error
	SetEndpoints(ctx context.Context, s Step) error
	StartPod(ctx context.Context, s Step) error
	SetGate(ctx context.Context, s Step, open bool) error
	EndPod(ctx context.Context, s Step, kill bool) error
	EndProxy(ctx context.Context, s Step, kill bool) error
	StartProxy(ctx context.Context, s Step) error
	ChangeProxy(ctx context.Context, s Step) error
	FreezeProxy(ctx context.Context, s Step) error
	ThawProxy(ctx context.Context, s Step) error
	CleanUpProxy(ctx context.Context, s Step) error
	FlushTables(ctx context.Context, s Step) error
	RestoreTables(ctx context.Context, s Step) error
	BlockProxy(ctx context.Context, s Step) error
	UnblockProxy(ctx context.Context, s Step) error
	RunOnNode(ctx context.Context, s Step) error
	ChangeAddress(ctx context.Context, s Step) error
	SetSysctl(ctx context.Context, s Step) error
	AskARP(ctx context.Context, s Step) error
	PowerOff(ctx context.Context, s Step) error
	PowerOn(ctx context.Context, s Step) error
	CordonNode(ctx context.Context, s Step) error
	EvictPods(ctx context.Context, s Step) error
	WithholdAPI(ctx context.Context, s Step) error
	ReturnAPI(ctx context.Context, s Step) error
	EndWatches(ctx context.Context, s Step, expire bool) error
	DelayWatches(ctx context.Context, s Step) error
	LoseEvents(ctx context.Context, s Step) error
	OpenClient(ctx context.Context, s Step) error
	CloseClient(ctx context.Context, s Step) error
	StopLane(ctx context.Context, s Step) error
	AwaitRolledOut(ctx context.Context, s Step) error
	AwaitBalanced(ctx context.Context, s Step) error
	AwaitReadiness(ctx context.Context, s Step, ready bool) error
	AwaitGone(ctx context.Context, s Step) error
	AwaitWatching(ctx context.Context, s Step) error
}

// Need is a capability that a verb needs of the site, besides the API.
type Need int

// The needs of verbs.
const (
	NeedsNothing      Need = iota
	NeedsProxies           // restartable proxies
	NeedsPower             // power control of nodes
	NeedsControlPlane      // the replay control plane
	NeedsAddresses         // fixed addresses for Services
	NeedsCommands          // commands on nodes
	NeedsOwnNodes          // nodes that need not be put back
)

// verb describes how the steps of a verb are parsed and checked, what they need, and how they are performed.
type verb struct {
	object     object
	keys       []key
	json       bool // the step ends with an API object as JSON
	text       bool // the step ends with words that are no arguments
	needs      Need
	idle       bool                           // its steps change neither the cluster nor its proxies
	takesAway  bool                           // its steps take a node's proxy or its tables away
	bringsBack bool                           // its steps end that
	transition func(c *checker, s Step) error // checks the state of the cluster at that time, and changes it; nil for no state
	perform    func(e Executor, ctx context.Context, s Step) error
}

// key is one argument of a verb.
type key struct {
	name     string
	required bool
	check    func(value string) error
}

func optional[T any](name string, t values.Type[T]) key { return key{name, false, t.Check} }
func required[T any](name string, t values.Type[T]) key { return key{name, true, t.Check} }

// bind fixes the last argument of a method of Executor.
func bind(method func(e Executor, ctx context.Context, s Step, choice bool) error, choice bool) func(Executor, context.Context, Step) error {
	return func(e Executor, ctx context.Context, s Step) error { return method(e, ctx, s, choice) }
}

// verbs has the description of each verb by its name. docs/timeline.md explains them.
var verbs = describeVerbs()

func describeVerbs() map[string]verb {
	v := map[string]verb{
		End: {object: nothing, idle: true, perform: func(Executor, context.Context, Step) error { return nil }},

		"object apply":  {object: nothing, json: true, needs: NeedsAddresses, transition: (*checker).changeNode, perform: Executor.ApplyObject},
		"object patch":  {object: oneReference, json: true, transition: (*checker).changeNode, perform: Executor.PatchObject},
		"object delete": {object: oneReference, keys: []key{optional("grace", values.Duration(0, time.Hour))}, transition: (*checker).changeNode, perform: Executor.DeleteObject},

		"workload deploy": {object: newWorkload, perform: Executor.DeployWorkload, keys: []key{optional("replicas", values.Number(1, 100)),
			optional("policy", values.Word("Local", "Cluster")), optional("gated", values.Type[bool](values.Switch)), optional("ports", values.Number(1, 1000))}},
		"workload rollout": {object: oneWorkload, perform: Executor.RollWorkload},
		"workload scale":   {object: oneWorkload, keys: []key{required("replicas", values.Number(0, 100))}, perform: Executor.ScaleWorkload},

		"endpoints create": {object: newService, keys: []key{required("addresses", values.Type[[]string](values.Addresses))}, perform: Executor.CreateEndpoints},
		"endpoints set":    {object: oneService, keys: []key{required("addresses", values.Type[[]string](values.Addresses))}, perform: Executor.SetEndpoints},

		"pod start": {object: newPod, perform: Executor.StartPod,
			keys: []key{required("workload", values.Type[string](values.Name)), required("node", values.Type[string](values.Name))}},
		"pod ready":     {object: onePod, perform: bind(Executor.SetGate, true)},
		"pod unready":   {object: onePod, perform: bind(Executor.SetGate, false)},
		"pod terminate": {object: onePod, keys: []key{optional("grace", values.Duration(time.Second, time.Hour))}, perform: bind(Executor.EndPod, false)},
		"pod kill":      {object: onePod, transition: (*checker).killPod, perform: bind(Executor.EndPod, true)},

		"proxy stop":    {object: oneNode, needs: NeedsProxies, takesAway: true, transition: proxyFrom(runs, ended), perform: bind(Executor.EndProxy, false)},
		"proxy kill":    {object: oneNode, needs: NeedsProxies, takesAway: true, transition: proxyFrom(runs, ended), perform: bind(Executor.EndProxy, true)},
		"proxy start":   {object: oneNode, needs: NeedsProxies, bringsBack: true, transition: (*checker).startProxy, perform: Executor.StartProxy},
		"proxy freeze":  {object: oneNode, needs: NeedsProxies, takesAway: true, transition: proxyFrom(runs, frozen), perform: Executor.FreezeProxy},
		"proxy thaw":    {object: oneNode, needs: NeedsProxies, bringsBack: true, transition: proxyFrom(frozen, runs), perform: Executor.ThawProxy},
		"proxy cleanup": {object: oneNode, needs: NeedsProxies, transition: proxyFrom(ended, ended), perform: Executor.CleanUpProxy},
		"proxy change": {object: oneNode, needs: NeedsProxies, transition: (*checker).changeProxy, perform: Executor.ChangeProxy,
			keys: []key{required("to", values.Type[string](values.Text))}},
		"proxy flush":   {object: oneNode, needs: NeedsProxies, takesAway: true, transition: tablesFlushed(true), perform: Executor.FlushTables},
		"proxy restore": {object: oneNode, needs: NeedsProxies, bringsBack: true, transition: tablesFlushed(false), perform: Executor.RestoreTables},
		Block:           {object: oneNode, needs: NeedsProxies, takesAway: true, transition: (*checker).blockProxy, perform: Executor.BlockProxy},
		Unblock:         {object: oneNode, needs: NeedsProxies, bringsBack: true, transition: (*checker).unblockProxy, perform: Executor.UnblockProxy},

		"node run": {object: oneNode, text: true, needs: NeedsCommands, transition: (*checker).needsPower, perform: Executor.RunOnNode},
		"node address": {object: oneNode, needs: NeedsCommands, transition: (*checker).changeAddress, perform: Executor.ChangeAddress,
			keys: []key{optional("add", values.Type[string](values.Prefix)), optional("remove", values.Type[string](values.Prefix))}},
		"node sysctl": {object: oneNode, needs: NeedsCommands, transition: (*checker).needsPower, perform: Executor.SetSysctl,
			keys: []key{required("name", values.Type[string](values.Sysctl)), required("value", values.Type[string](values.Text))}},

		"ask arp": {object: oneAddress, idle: true, needs: NeedsCommands, perform: Executor.AskARP},

		"node off": {object: oneNode, needs: NeedsPower, transition: (*checker).powerOff, perform: Executor.PowerOff},
		"node on":  {object: oneNode, needs: NeedsPower, transition: (*checker).powerOn, perform: Executor.PowerOn},
		"node cordon": {object: oneNode, needs: NeedsOwnNodes, transition: (*checker).cordon, perform: Executor.CordonNode,
			keys: []key{optional("taint", values.Word(AutoscalerTaint))}},
		"node evict": {object: oneNode, needs: NeedsOwnNodes, transition: (*checker).evict, perform: Executor.EvictPods,
			keys: []key{optional("minAvailable", values.Number(1, 100))}},

		"api away":   {object: nodeOrAll, needs: NeedsControlPlane, transition: (*checker).apiAway, perform: Executor.WithholdAPI},
		"api back":   {object: nodeOrAll, needs: NeedsControlPlane, transition: (*checker).apiBack, perform: Executor.ReturnAPI},
		"api cut":    {object: nodeOrAll, needs: NeedsControlPlane, transition: (*checker).needsWatches, perform: bind(Executor.EndWatches, false)},
		"api expire": {object: nodeOrAll, needs: NeedsControlPlane, transition: (*checker).needsWatches, perform: bind(Executor.EndWatches, true)},
		"api delay": {object: nodeOrAll, needs: NeedsControlPlane, transition: (*checker).needsWatches, perform: Executor.DelayWatches,
			keys: []key{required("by", values.Duration(0, time.Hour))}},
		"api lose": {object: nodeOrAll, needs: NeedsControlPlane, transition: (*checker).needsWatches, perform: Executor.LoseEvents,
			keys: []key{optional("resource", values.Word("services", "endpointslices", "endpoints", "nodes"))}},

		"client open":  {object: oneWorkload, idle: true, keys: []key{optional("each", values.Number(1, 1000))}, transition: clientOpen(true), perform: Executor.OpenClient},
		"client close": {object: oneWorkload, idle: true, transition: clientOpen(false), perform: Executor.CloseClient},

		laneStart:   {object: oneLane, idle: true, keys: []key{optional("connections", values.Number(1, 10000)), optional("rate", values.Type[float64](values.Rate))}, transition: laneRuns(true)},
		"lane stop": {object: oneLane, idle: true, transition: laneRuns(false), perform: Executor.StopLane},
	}
	within := []key{optional("within", values.Duration(time.Second, time.Hour))}
	for condition, d := range map[string]verb{
		"rolled-out": {object: oneWorkload, perform: Executor.AwaitRolledOut},
		"balanced":   {object: oneWorkload, perform: Executor.AwaitBalanced},
		"ready":      {object: onePod, perform: bind(Executor.AwaitReadiness, true)},
		"unready":    {object: onePod, perform: bind(Executor.AwaitReadiness, false)},
		"gone":       {object: onePod, perform: Executor.AwaitGone},
		"watching":   {object: allNodes, needs: NeedsControlPlane, perform: Executor.AwaitWatching},
	} {
		d.keys, d.idle = within, true
		v[expect+condition], v[await+condition] = d, d
	}
	return v
}

// The verbs that make the programs of a proxy fail, and work again. Not each subject writes its rules with programs.
const (
	Block   = "proxy block"
	Unblock = "proxy unblock"
)

// AutoscalerTaint is the key of the taint that the cluster autoscaler sets on a node before it removes the node.
const AutoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// laneStart is the verb of `lane` lines. Lanes start before the baseline, so no step has this verb.
const laneStart = "lane start"

// The verbs that wait for a condition: without the condition, `expect` makes the run invalid and `await` does not.
const (
	expect = "expect "
	await  = "await "
)

// Waiting returns the verb that waits for a condition such as rolled-out. If required, the run is invalid without the condition.
func Waiting(condition string, required bool) string {
	if required {
		return expect + condition
	}
	return await + condition
}

// Condition returns the condition that the step waits for, such as rolled-out; empty for a step that does not wait.
func (s Step) Condition() string {
	for _, prefix := range []string{expect, await} {
		if condition, is := strings.CutPrefix(s.Verb, prefix); is {
			return condition
		}
	}
	return ""
}

// Optional reports whether the run continues without the step's condition.
func (s Step) Optional() bool { return strings.HasPrefix(s.Verb, await) }

// Perform performs the step.
func (s Step) Perform(ctx context.Context, e Executor) error {
	v, known := verbs[s.Verb]
	if !known || v.perform == nil {
		return fmt.Errorf("a timeline has no step %q", s.Verb)
	}
	return v.perform(e, ctx, s)
}

// NeedOf returns the need of a verb; NeedsNothing for an unknown verb.
func NeedOf(verb string) Need { return verbs[verb].needs }

// Disturbs reports whether the steps of a verb change the cluster or its proxies.
func Disturbs(verb string) bool { return !verbs[verb].idle }

// Away returns the longest time from a step that takes a node's proxy or its tables away to the step that brings them back.
func (t *Timeline) Away() time.Duration {
	since, longest := map[string]time.Duration{}, time.Duration(0)
	for _, s := range t.Steps {
		switch v := verbs[s.Verb]; {
		case v.takesAway:
			since[s.Object] = s.At
		case v.bringsBack:
			longest = max(longest, s.At-since[s.Object])
		}
	}
	return longest
}

// NeedsReplay returns the first step that only the replay control plane can perform, and false when there is none.
func (t *Timeline) NeedsReplay() (Step, bool) {
	i := slices.IndexFunc(t.Steps, func(s Step) bool { return NeedOf(s.Verb) == NeedsControlPlane })
	if i < 0 {
		return Step{}, false
	}
	return t.Steps[i], true
}

// Verbs returns all verbs, sorted.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

// Kinds returns the kinds of API objects that a step can change.
func Kinds() []string {
	return []string{"Deployment", "EndpointSlice", "Endpoints", "Node", "Pod", "Service"}
}

// Addresses returns the value of the key `addresses`.
func (s Step) Addresses() []string {
	list, _ := values.Addresses(s.Get("addresses")) // the parser has checked it
	return list
}

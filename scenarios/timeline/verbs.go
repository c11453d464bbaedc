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

// All is the object of a step on every node.
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
	PowerOff(ctx context.Context, s Step) error
	PowerOn(ctx context.Context, s Step) error
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

// Need is what a verb needs of the cluster besides its API.
type Need int

// The needs of verbs.
const (
	NeedsNothing      Need = iota
	NeedsProxies           // proxies that can be stopped and started
	NeedsPower             // power control of nodes
	NeedsControlPlane      // the replay control plane
	NeedsAddresses         // Services that get the same addresses again
)

// verb describes what a step can do: how it is read and checked, what it needs, and how it is performed.
type verb struct {
	object object
	keys   []key
	json   bool // an object of the API follows
	needs  Need
	follow func(c *checker, s Step) error // checks the state of the cluster at that time, and changes it; nil for no state
	do     func(e Executor, ctx context.Context, s Step) error
}

// key is one argument of a verb.
type key struct {
	name     string
	required bool
	check    func(value string) error
}

func optional[T any](name string, t values.Type[T]) key { return key{name, false, t.Check} }
func required[T any](name string, t values.Type[T]) key { return key{name, true, t.Check} }

// with adds an argument to a method of Executor.
func with(do func(e Executor, ctx context.Context, s Step, choice bool) error, choice bool) func(Executor, context.Context, Step) error {
	return func(e Executor, ctx context.Context, s Step) error { return do(e, ctx, s, choice) }
}

// verbs are all verbs. docs/timeline.md explains each.
var verbs = describeVerbs()

func describeVerbs() map[string]verb {
	v := map[string]verb{
		End: {object: nothing, do: func(Executor, context.Context, Step) error { return nil }},

		"object apply":  {object: nothing, json: true, needs: NeedsAddresses, do: Executor.ApplyObject},
		"object patch":  {object: reference, json: true, do: Executor.PatchObject},
		"object delete": {object: reference, keys: []key{optional("grace", values.Duration(0, time.Hour))}, do: Executor.DeleteObject},

		"workload deploy": {object: newWorkload, do: Executor.DeployWorkload, keys: []key{optional("replicas", values.Number(1, 100)),
			optional("policy", values.Word("Local", "Cluster")), optional("gated", values.Type[bool](values.Switch)), optional("ports", values.Number(1, 1000))}},
		"workload rollout": {object: aWorkload, do: Executor.RollWorkload},
		"workload scale":   {object: aWorkload, keys: []key{required("replicas", values.Number(0, 100))}, do: Executor.ScaleWorkload},

		"endpoints create": {object: newService, keys: []key{required("addresses", values.Type[[]string](values.Addresses))}, do: Executor.CreateEndpoints},
		"endpoints set":    {object: someService, keys: []key{required("addresses", values.Type[[]string](values.Addresses))}, do: Executor.SetEndpoints},

		"pod start": {object: newPod, do: Executor.StartPod,
			keys: []key{required("workload", values.Type[string](values.Name)), required("node", values.Type[string](values.Name))}},
		"pod ready":     {object: aPod, do: with(Executor.SetGate, true)},
		"pod unready":   {object: aPod, do: with(Executor.SetGate, false)},
		"pod terminate": {object: aPod, keys: []key{optional("grace", values.Duration(time.Second, time.Hour))}, do: with(Executor.EndPod, false)},
		"pod kill":      {object: aPod, follow: (*checker).killPod, do: with(Executor.EndPod, true)},

		"proxy stop":    {object: aNode, needs: NeedsProxies, follow: proxyFrom(runs, ended), do: with(Executor.EndProxy, false)},
		"proxy kill":    {object: aNode, needs: NeedsProxies, follow: proxyFrom(runs, ended), do: with(Executor.EndProxy, true)},
		"proxy start":   {object: aNode, needs: NeedsProxies, follow: proxyFrom(ended, runs), do: Executor.StartProxy},
		"proxy freeze":  {object: aNode, needs: NeedsProxies, follow: proxyFrom(runs, frozen), do: Executor.FreezeProxy},
		"proxy thaw":    {object: aNode, needs: NeedsProxies, follow: proxyFrom(frozen, runs), do: Executor.ThawProxy},
		"proxy cleanup": {object: aNode, needs: NeedsProxies, follow: proxyFrom(ended, ended), do: Executor.CleanUpProxy},
		"proxy change": {object: aNode, needs: NeedsProxies, follow: (*checker).changeProxy, do: Executor.ChangeProxy,
			keys: []key{required("to", values.Type[string](values.Text))}},
		"proxy flush":   {object: aNode, needs: NeedsProxies, follow: tablesFlushed(true), do: Executor.FlushTables},
		"proxy restore": {object: aNode, needs: NeedsProxies, follow: tablesFlushed(false), do: Executor.RestoreTables},

		"node off": {object: aNode, needs: NeedsPower, follow: (*checker).powerOff, do: Executor.PowerOff},
		"node on":  {object: aNode, needs: NeedsPower, follow: (*checker).powerOn, do: Executor.PowerOn},

		"api away":   {object: nodeOrAll, needs: NeedsControlPlane, follow: (*checker).apiAway, do: Executor.WithholdAPI},
		"api back":   {object: nodeOrAll, needs: NeedsControlPlane, follow: (*checker).apiBack, do: Executor.ReturnAPI},
		"api cut":    {object: nodeOrAll, needs: NeedsControlPlane, follow: (*checker).needsWatches, do: with(Executor.EndWatches, false)},
		"api expire": {object: nodeOrAll, needs: NeedsControlPlane, follow: (*checker).needsWatches, do: with(Executor.EndWatches, true)},
		"api delay": {object: nodeOrAll, needs: NeedsControlPlane, follow: (*checker).needsWatches, do: Executor.DelayWatches,
			keys: []key{required("by", values.Duration(0, time.Hour))}},
		"api lose": {object: nodeOrAll, needs: NeedsControlPlane, follow: (*checker).needsWatches, do: Executor.LoseEvents,
			keys: []key{optional("resource", values.Word("services", "endpointslices", "endpoints", "nodes"))}},

		"client open":  {object: aWorkload, keys: []key{optional("each", values.Number(1, 1000))}, follow: clientOpen(true), do: Executor.OpenClient},
		"client close": {object: aWorkload, follow: clientOpen(false), do: Executor.CloseClient},

		laneStart:   {object: aLane, keys: []key{optional("connections", values.Number(1, 10000)), optional("rate", values.Type[float64](values.Rate))}, follow: laneRuns(true)},
		"lane stop": {object: aLane, follow: laneRuns(false), do: Executor.StopLane},
	}
	within := []key{optional("within", values.Duration(time.Second, time.Hour))}
	for condition, d := range map[string]verb{
		"rolled-out": {object: aWorkload, do: Executor.AwaitRolledOut},
		"balanced":   {object: aWorkload, do: Executor.AwaitBalanced},
		"ready":      {object: aPod, do: with(Executor.AwaitReadiness, true)},
		"unready":    {object: aPod, do: with(Executor.AwaitReadiness, false)},
		"gone":       {object: aPod, do: Executor.AwaitGone},
		"watching":   {object: allNodes, needs: NeedsControlPlane, do: Executor.AwaitWatching},
	} {
		d.keys = within
		v[expect+condition], v[await+condition] = d, d
	}
	return v
}

// laneStart is the verb of the lines `lane` before the steps. A lane runs from the baseline on, so that no step performs it.
const laneStart = "lane start"

// The verbs that wait for a condition: expect fails the run where it does not come about, await does not.
const (
	expect = "expect "
	await  = "await "
)

// Waiting is the verb that waits for a condition such as rolled-out; required says that the run fails without it.
func Waiting(condition string, required bool) string {
	if required {
		return expect + condition
	}
	return await + condition
}

// Condition is what the step waits for, such as rolled-out; empty for a step that does not wait.
func (s Step) Condition() string {
	for _, prefix := range []string{expect, await} {
		if condition, is := strings.CutPrefix(s.Verb, prefix); is {
			return condition
		}
	}
	return ""
}

// Optional reports whether a run continues when the step's condition does not come about.
func (s Step) Optional() bool { return strings.HasPrefix(s.Verb, await) }

// Perform performs the step.
func (s Step) Perform(ctx context.Context, e Executor) error {
	v, known := verbs[s.Verb]
	if !known || v.do == nil {
		return fmt.Errorf("a timeline has no step %q", s.Verb)
	}
	return v.do(e, ctx, s)
}

// NeedOf is what a verb needs; NeedsNothing for a word that is no verb.
func NeedOf(verb string) Need { return verbs[verb].needs }

// NeedsReplay returns the first step that only the replay control plane can perform, and false when there is none.
func (t *Timeline) NeedsReplay() (Step, bool) {
	i := slices.IndexFunc(t.Steps, func(s Step) bool { return NeedOf(s.Verb) == NeedsControlPlane })
	if i < 0 {
		return Step{}, false
	}
	return t.Steps[i], true
}

// Verbs are the words that a step can begin with, sorted.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

// Kinds are the kinds of object that a step can change.
func Kinds() []string {
	return []string{"Deployment", "EndpointSlice", "Endpoints", "Node", "Pod", "Service"}
}

// Addresses is the value of the key `addresses`.
func (s Step) Addresses() []string {
	list, _ := values.Addresses(s.Get("addresses")) // the parser has checked it
	return list
}

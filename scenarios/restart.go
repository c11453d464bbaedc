package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The parameters of restart alone.
var (
	restartedNodes = newWord("which", "each", "the proxy of one node, of each (one after the other) or of all (at once; they start again one after the other)", "one", "each", "all")
	restartChange  = newWord("change", "off", "change of the node's pod while the proxy is away: on (it is deleted), "+
		"ready (it was unready before, and becomes ready again) or off", changeDelete, changeReady, "off")
	restartCount = newNumber("restarts", "1", "number of rounds of restarts", 1, 1000)
)

// restart restarts the proxies of one, each or all nodes, as upgrades and crashes do (kubernetes#75360, #73154). A
// frozen proxy acts like one without memory (kubernetes#111661).
func restart() Scenario {
	return Scenario{
		Name:    "restart",
		Summary: "restarts, kills or suspends the proxy of one, each or all nodes",
		Parameters: []Parameter{
			laneParameters(),
			endSignal.Parameter,
			restartedNodes.Parameter,
			restartCount.Parameter,
			downtime.Parameter,
			restartChange.Parameter,
			Replicas.withDefault("3"),
		},
		Steps: restartSteps,
		Setup: restartSetup,
		Run:   restartRounds,
	}
}

// restartRounds is Run of a scenario that restarts proxies.
func restartRounds(ctx context.Context, w *World) error {
	for range restartCount.Of(w.Params) {
		if err := w.restartEach(ctx); err != nil {
			return err
		}
	}
	return nil
}

func restartSetup(p Params) Setup {
	one := downtime.Of(p) + 5*time.Second
	switch restartChange.Of(p) {
	case changeDelete:
		one = max(downtime.Of(p), p.rollTime(1)) + 5*time.Second
	case changeReady:
		one += proxySyncTime
	}
	one *= time.Duration(restartCount.Of(p))
	setup := Setup{Gated: restartChange.Of(p) == changeReady, Lasts: one}
	if restartedNodes.Of(p) == "each" {
		setup.Lasts, setup.PerNode = 0, one
	}
	return setup
}

// restartSteps are those of one restart with these parameters.
func restartSteps(p Params) []string {
	steps := []string{"proxy stop", "proxy start"}
	switch endSignal.Of(p) {
	case "KILL":
		steps = []string{"proxy kill", "proxy start"}
	case "STOP":
		steps = []string{"proxy freeze", "proxy thaw"}
	}
	switch restartChange.Of(p) {
	case changeDelete:
		steps = append(steps, "pod terminate", "expect rolled-out", "expect balanced")
	case changeReady:
		steps = append(steps, gateSteps...)
	}
	return steps
}

// restartLive is restart for a DaemonSet: its controller replaces the pods.
func restartLive() Scenario {
	return Scenario{
		Name: "restart", Summary: "restarts the DaemonSet of the cluster's proxy, as kubectl rollout restart does",
		Steps: always([]string{stepRestartSet}), Touches: func(ctx context.Context, w *World) ([]string, error) { return w.touchesSet(ctx) },
		Parameters: []Parameter{
			laneParameters(),
			proxySet.Parameter,
			restartCount.Parameter,
			Replicas.withDefault("2"),
		},
		Run: restartRounds,
	}
}

// restartEach restarts the proxies of each group of nodes, one after the other.
func (w *World) restartEach(ctx context.Context) error {
	for _, nodes := range w.restartGroups() {
		if err := w.restartGroup(ctx, nodes); err != nil {
			return err
		}
		if err := w.Clock.Sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// restartGroups are the nodes whose proxies are away together. For a DaemonSet its controller decides that.
func (w *World) restartGroups() (groups [][]string) {
	if _, _, is := w.Params.ProxySet(); is {
		return [][]string{w.Nodes}
	}
	switch restartedNodes.Of(w.Params) {
	case "one":
		return [][]string{w.Nodes[:1]}
	case "all":
		return [][]string{w.Nodes}
	}
	for i := range w.Nodes {
		groups = append(groups, w.Nodes[i:i+1])
	}
	return groups
}

func (w *World) restartGroup(ctx context.Context, nodes []string) error {
	what, node := "restart", ""
	if endSignal.Of(w.Params) == "STOP" {
		what = "freeze"
	}
	name := fmt.Sprintf("%s the proxies of %s", what, strings.Join(nodes, ", "))
	if len(nodes) == 1 {
		name, node = fmt.Sprintf("%s the proxy of %s", what, nodes[0]), nodes[0]
	}
	return w.Step(ctx, name, node, func(ctx context.Context) error {
		during := func(ctx context.Context) error { return nil }
		switch restartChange.Of(w.Params) {
		case changeDelete:
			during = func(ctx context.Context) error {
				_, err := w.deletePod(ctx, nodes[0])
				return err
			}
		case changeReady:
			return w.readyMeanwhile(ctx, nodes)
		}
		if err := w.restartProxies(ctx, nodes, during); err != nil || restartChange.Of(w.Params) != changeDelete {
			return err
		}
		if err := w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime()); err != nil {
			return err
		}
		return w.await(ctx, "balanced", w.run.main.name, w.membershipTime())
	})
}

// The changes of a pod while its proxy is away: it is deleted, or it becomes ready again.
const (
	changeDelete = "on"
	changeReady  = "ready"
)

// proxySyncTime is longer than a proxy takes to program an endpoint that became unready.
const proxySyncTime = 5 * time.Second

// readyMeanwhile makes the node's pod unready, ends the proxies, and makes the pod ready while they are away: the new
// proxy must revert the old one's drain (kubernetes#92019).
func (w *World) readyMeanwhile(ctx context.Context, nodes []string) error {
	n, _, err := w.podOnNode(ctx, nodes[0])
	if err != nil {
		return err
	}
	ref := fmt.Sprintf("%s#%d", w.run.main.name, n+1)
	if err := w.performVerb(ctx, "pod unready", ref); err != nil {
		return err
	}
	if err := w.await(ctx, "unready", ref, readinessWithin); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, proxySyncTime); err != nil {
		return err
	}
	return w.restartProxies(ctx, nodes, func(ctx context.Context) error {
		if err := w.performVerb(ctx, "pod ready", ref); err != nil {
			return err
		}
		return w.await(ctx, "ready", ref, readinessWithin)
	})
}

func (w *World) restartProxy(ctx context.Context, node string) error {
	return w.restartProxies(ctx, []string{node}, func(context.Context) error { return nil })
}

// restartProxies ends or freezes the proxies, calls during, and starts or continues them after the downtime.
func (w *World) restartProxies(ctx context.Context, nodes []string, during func(context.Context) error) error {
	if _, _, is := w.Params.ProxySet(); is {
		return w.restartSet(ctx)
	}
	away, again := "proxy stop", "proxy start"
	switch endSignal.Of(w.Params) {
	case "KILL":
		away = "proxy kill"
	case "STOP":
		away, again = "proxy freeze", "proxy thaw"
	}
	for _, node := range nodes {
		if err := w.performVerb(ctx, away, node); err != nil {
			return fmt.Errorf("ending the proxy of %s: %w", node, err)
		}
	}
	end := w.Clock.Now() + downtime.Of(w.Params)
	if err := during(ctx); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, max(0, end-w.Clock.Now())); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := w.performVerb(ctx, again, node); err != nil {
			return fmt.Errorf("starting the proxy of %s again: %w", node, err)
		}
	}
	return nil
}

// podOnNode is the node's pod of the Deployment, or the first pod where the node has none, and its index.
func (w *World) podOnNode(ctx context.Context, node string) (n int, pod corev1.Pod, err error) {
	pods, err := w.run.main.oldestFirst(ctx, w)
	if err != nil {
		return 0, pod, err
	}
	if len(pods) == 0 {
		return 0, pod, errors.New("the Deployment has no pod: no endpoint can change")
	}
	n = max(0, slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node && p.DeletionTimestamp == nil }))
	return n, pods[n], nil
}

// deletePod deletes the node's pod of the Deployment, and returns its name in the step when it is terminating.
func (w *World) deletePod(ctx context.Context, node string) (pod string, err error) {
	n, victim, err := w.podOnNode(ctx, node)
	if err != nil {
		return "", err
	}
	pod = fmt.Sprintf("%s#%d", w.run.main.name, n+1)
	if err := w.performVerb(ctx, "pod terminate", pod); err != nil {
		return pod, err
	}
	return pod, w.Until(ctx, "the pod "+victim.Name+" to be on its way out", time.Minute, func(ctx context.Context) (bool, string, error) {
		var now corev1.Pod
		err := w.Cluster.Get(ctx, victim.Name, w.namespace(), &now)
		if apierrors.IsNotFound(err) {
			return true, "", nil
		}
		return now.DeletionTimestamp != nil || now.UID != victim.UID, "it is as it was", err
	})
}

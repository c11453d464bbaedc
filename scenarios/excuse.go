package scenarios

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
)

// The bounds of unavoidable loss that no parameter has. They bound what the cluster and the load balancer need, and a moment in which
// any proxy must have followed.
const (
	// followTime is the time in which a proxy must have followed one change, after it could see the change. kube-proxy waits 1 s between
	// two syncs by default (minSyncPeriod of KubeProxyConfiguration), and a sync takes time too.
	followTime = 2 * time.Second
	// applyTime is what the load balancer needs to apply the result of a health check, and a client to notice the end of a request.
	applyTime = 100 * time.Millisecond
	// deadPodsTime is how long the pods of a node without power may stay endpoints: a grace period of 50 s
	// (--node-monitor-grace-period), and a period of 5 s of the controller that checks it.
	deadPodsTime = 55 * time.Second
	// reportTime is the time in which the kubelet of a node that boots has reported the end of its pods.
	reportTime = 2 * time.Second
	// connectTime is how long a client tries to connect: it sends a packet without an answer again.
	connectTime = 3 * time.Second
)

// The classes of unavoidable loss.
var (
	// silence is what packets meet that nothing answers.
	silence = []record.Class{record.Delayed, record.Unreachable, record.ConnectTimeout, record.Reset, record.Closed, record.ReplyTimeout, record.Stalled}
	// answers say that there is no backend.
	answers = []record.Class{record.Refused, record.Rejected}
	// refusals are silence and such answers.
	refusals = slices.Concat(silence, answers)
	// broken is how an open connection fails that loses its node.
	broken = []record.Class{record.Unreachable, record.Reset, record.Closed, record.ReplyTimeout}
)

// excuse records a loss that a step makes unavoidable for every proxy; why is a clause. A window without time excuses nothing.
func (w *World) excuse(node, why string, body record.Excuse, classes []record.Class) {
	if body.Until <= body.From || w.run.main == nil {
		return
	}
	body.Service = w.namespace() + "/" + w.run.main.name
	for _, c := range classes {
		body.Classes = append(body.Classes, c.String())
	}
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Node: node, Object: w.run.main.name, Text: why, Body: body})
}

// silentFall bounds the time until the load balancer has removed a node that answers no health check.
func (p Params) silentFall() time.Duration {
	checks := CheckFall.Of(p) + 1
	if p.terminated() { // it begins a check an interval after the end of the last one
		checks = 2 * CheckFall.Of(p)
	}
	return time.Duration(checks)*CheckInterval.Of(p) + applyTime
}

// failedFall bounds the time until the load balancer has removed a node that fails its health checks at once.
func (p Params) failedFall() time.Duration {
	return time.Duration(CheckFall.Of(p))*CheckInterval.Of(p) + applyTime
}

// rise bounds the time until the load balancer has added a node that passes its health checks.
func (p Params) rise() time.Duration {
	return time.Duration(CheckRise.Of(p))*CheckInterval.Of(p) + applyTime
}

// exitTime is the least time from the deletion of a pod until its process ends.
func (p Params) exitTime() time.Duration {
	return min(PreStop.Of(p)+shutdownDelay.Of(p), GracePeriod.Of(p))
}

// exitFall bounds the time from the deletion of a node's only pod until the load balancer has removed the node, where the proxy follows
// the deletion.
func (p Params) exitFall() time.Duration {
	if CheckTarget.Of(p) == "nodePort" { // which a node without a pod does not answer
		return followTime + p.silentFall()
	}
	return followTime + p.failedFall()
}

// excuseExits records what is lost behind policy Local over the nodes of pods that end before the load balancer can have removed the
// node. most is how long that may take. An empty node stands for all.
func (w *World) excuseExits(node string, from, most time.Duration) {
	after := w.Params.exitTime()
	if !w.run.main.answersLocally(w) || after >= most || w.run.tolerant {
		return // a soak ends with its first failed attempt, which must not be a pass
	}
	w.excuse(node, fmt.Sprintf("a pod serves for %s after its deletion, while the load balancer may need %s to remove its node", after, most),
		record.Excuse{Path: record.PathExits, From: from, Until: w.Clock.Now(), After: after, Most: most, Follow: followTime}, refusals)
}

// excusePowerOff records what is lost with a node that loses power: traffic over it until the load balancer can have removed it, and
// traffic to its pods until they can have become unready.
func (w *World) excusePowerOff(at time.Duration, node string, pods podShare) {
	if marked, is := w.state().marked[node]; is {
		w.excuseMarked(at, marked, node)
	} else {
		fall := w.Params.silentFall()
		w.excuse(node, fmt.Sprintf("%s has no power, and the load balancer needs %d failed health checks, of %s each, to remove it", node, CheckFall.Of(w.Params), CheckInterval.Of(w.Params)),
			record.Excuse{Path: record.PathNode, From: at, Until: at + fall}, refusals)
	}
	w.excusePods(at, at+deadPodsTime+followTime, node, fmt.Sprintf("%s has no power, and its pods stay endpoints until their node has missed its heartbeats for 50 s", node), pods, silence)
}

// excusePowerOn records what is lost with the pods of a node that boots. If it was without power for a short time, they are still
// endpoints, and their addresses refuse connections until proxies have followed their removal.
func (w *World) excusePowerOn(at time.Duration, node string) {
	lost, is := w.state().dark[node]
	if !is || at >= lost.since+deadPodsTime {
		return
	}
	w.excusePods(at, at+reportTime+followTime, node, fmt.Sprintf("the pods of %s ended with its power, and stay endpoints until it has booted and reported that", node), lost.pods, refusals)
	// The loss of packets without an answer until here is excused already.
	w.excusePods(max(lost.since, at-connectTime), at, node, fmt.Sprintf("connections to the pods of %s that were begun before it booted meet its refusal", node), lost.pods, answers)
}

// excuseMarked records what is lost with a node that was marked for removal before: the mark gave the load balancer time, and only open
// connections end with the node.
func (w *World) excuseMarked(at, marked time.Duration, node string) {
	w.excuse(node, fmt.Sprintf("%s was removed before the load balancer could have followed its mark", node),
		record.Excuse{Path: record.PathNode, From: at, Until: marked + followTime + w.Params.failedFall()}, refusals)
	turn := time.Duration(float64(longConnections(w.Rate)) / w.Rate * float64(time.Second)) // in which each connection has a request
	w.excuse(node, fmt.Sprintf("open connections over %s end with it", node),
		record.Excuse{Path: record.PathNode, Open: true, From: at, Until: at + turn + openDeadline + applyTime}, broken)
}

// openDeadline is the time after which a request on an open connection has failed.
const openDeadline = time.Second

// podShare is a part of the pods of the measured Service.
type podShare struct{ some, all int }

// sharesOn counts the ready pods of the measured Service, and those on a node.
func (w *World) sharesOn(ctx context.Context, node string) (n podShare, err error) {
	if w.run.main == nil {
		return n, nil
	}
	pods, err := w.run.main.pods(ctx, w)
	if err != nil {
		return n, fmt.Errorf("listing the pods: %w", err)
	}
	for _, pod := range pods {
		if podIsReady(pod) && pod.DeletionTimestamp == nil {
			n.all++
			if pod.Spec.NodeName == node {
				n.some++
			}
		}
	}
	return n, nil
}

// excusePods records that connections to the pods on a node are lost, whichever node they come over. With policy Local only the node
// itself sends connections to them.
func (w *World) excusePods(from, until time.Duration, node, why string, pods podShare, classes []record.Class) {
	if pods.some == 0 || w.run.main.answersLocally(w) {
		return
	}
	w.excuse(node, why, record.Excuse{Path: record.PathPods, Share: float64(pods.some) / float64(pods.all), From: from, Until: until}, classes)
}

// excuseDrop records that a foreign rule dropped packets to the pods on a node. With policy Local these are all packets over it.
func (w *World) excuseDrop(from, until time.Duration, node, rule string, pods podShare) {
	why := fmt.Sprintf("the foreign rule %s drops what the proxy sends to the pods on %s", rule, node)
	if w.run.main.answersLocally(w) {
		w.excuse(node, why, record.Excuse{Path: record.PathNode, From: from, Until: until}, silence)
		return
	}
	w.excusePods(from, until, node, why, pods, silence)
}

// noteScale notes that the measured workload has no pods from now on.
func (w *World) noteScale(at time.Duration, replicas int) {
	if replicas == 0 && w.state().emptied == 0 {
		w.run.emptied = at + w.Params.exitTime()
	}
}

// excuseEmpty waits for the first ready pod of a measured workload that was scaled to zero and has to have pods again, and records what
// was lost without pods.
func (w *World) excuseEmpty(ctx context.Context, most time.Duration) error {
	from := w.state().emptied
	if from == 0 || w.run.main.replicas == 0 {
		return nil
	}
	ready := func(pod corev1.Pod) bool { return podIsReady(pod) && pod.DeletionTimestamp == nil }
	err := w.Until(ctx, "a ready pod", most, func(ctx context.Context) (bool, string, error) {
		pods, err := w.run.main.pods(ctx, w)
		if err == nil {
			err = w.run.main.openGates(ctx, w)
		}
		return slices.ContainsFunc(pods, ready), fmt.Sprintf("%d pods, none is ready", len(pods)), err
	})
	if err != nil {
		return err
	}
	w.run.emptied = 0
	w.excuseAbsence(from, w.Clock.Now(), "the Service had no pod", w.run.main.answersLocally(w))
	return nil
}

// excuseAbsence records that the Service had no backend or did not exist, until a proxy must have followed its return. Then the load
// balancer may need its health checks to add nodes.
func (w *World) excuseAbsence(from, back time.Duration, why string, checked bool) {
	until := back + followTime
	w.excuse("", why, record.Excuse{Path: record.PathAll, From: from, Until: until}, refusals)
	if checked {
		w.excuse("", fmt.Sprintf("%s, and the load balancer needs %d passed health checks to add a node", why, CheckRise.Of(w.Params)),
			record.Excuse{Path: record.PathNone, From: until, Until: until + w.Params.rise()}, refusals)
	}
}

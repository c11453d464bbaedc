package observers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/hitless/hitless/record"
)

// WatchPods records the states of a namespace's pods in the API, until ctx ends: created, ready, unready, terminating and
// removed. The API does not know when a process received its signal and when it exited. WatchPods returns an error only when
// the watch cannot be set up.
func WatchPods(ctx context.Context, client kubernetes.Interface, namespace string, recorder record.Recorder, now func() time.Duration) error {
	return watchPods(ctx, informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)),
		func(pod *corev1.Pod, state record.PodState) {
			if state == bound {
				return
			}
			recorder.Event(record.Event{At: now(), Node: pod.Spec.NodeName, Object: pod.Name,
				Text: fmt.Sprintf("pod %s is %s, by the API", pod.Name, state),
				Body: record.Pod{State: state, Pod: pod.Name, Node: pod.Spec.NodeName, IP: pod.Status.PodIP, Generation: pod.Labels["pod-template-hash"]}})
		})
}

// WatchProxyPods records the states of the proxy called name on a live cluster, until ctx ends: started (its pod has a node),
// ready, stopped (asked to terminate) and exited. They follow from those pods of the namespace that match the label selector. WatchProxyPods returns
// an error only when the watch cannot be set up.
func WatchProxyPods(ctx context.Context, client kubernetes.Interface, namespace, selector, name string, recorder record.Recorder, now func() time.Duration) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	return watchPods(ctx, factory, func(pod *corev1.Pod, state record.PodState) {
		if proxyState, is := proxyStates[state]; is {
			recorder.Event(record.Event{At: now(), Node: pod.Spec.NodeName, Object: name,
				Text: fmt.Sprintf("the proxy's pod %s on %s is %s, by the API", pod.Name, pod.Spec.NodeName, state),
				Body: record.Proxy{State: proxyState}})
		}
	})
}

// bound is the state of a pod that the scheduler has given a node. A created pod of a DaemonSet has none yet.
const bound record.PodState = "bound to its node"

// proxyStates maps the state of a pod to that of the proxy in it.
var proxyStates = map[record.PodState]record.ProxyState{bound: record.ProxyStarted, record.PodReady: record.ProxyReady, record.PodTerminating: record.ProxyStopped, record.PodRemoved: record.ProxyExited}

func watchPods(ctx context.Context, factory informers.SharedInformerFactory, recorder func(pod *corev1.Pod, state record.PodState)) error {
	err := watch(ctx, factory, factory.Core().V1().Pods().Informer(), func(before, after *corev1.Pod) {
		pod := after
		if pod == nil {
			pod = before
		}
		for _, state := range podChanges(before, after) {
			recorder(pod, state)
		}
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

// podChanges returns the states that a pod reached between two versions; nil stands for a pod that does not exist.
func podChanges(before, after *corev1.Pod) []record.PodState {
	if after == nil {
		return []record.PodState{record.PodRemoved}
	}
	var states []record.PodState
	if before == nil {
		states, before = append(states, record.PodCreated), &corev1.Pod{}
	}
	if before.Spec.NodeName == "" && after.Spec.NodeName != "" {
		states = append(states, bound)
	}
	if after.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		states = append(states, record.PodTerminating)
	}
	switch was, is := PodReady(before), PodReady(after); {
	case is && !was:
		states = append(states, record.PodReady)
	case was && !is:
		states = append(states, record.PodUnready)
	}
	return states
}

// PodReady reports whether the API has a pod as ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

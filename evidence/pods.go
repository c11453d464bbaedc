package evidence

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/reports"
)

// Pods records the life of the pods of a namespace, as far as the API tells it, until ctx ends: created, ready, unready,
// terminating and removed. When a process got its signal and when it ended, only a node knows.
func Pods(ctx context.Context, client kubernetes.Interface, namespace string, record reports.Recorder, now func() time.Duration) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	change := func(before, after *corev1.Pod) {
		for _, state := range podChanges(before, after) {
			pod := after
			if pod == nil {
				pod = before
			}
			record.Event(reports.Event{At: now(), Kind: reports.EventPod, Node: pod.Spec.NodeName, Object: pod.Name,
				Text:  fmt.Sprintf("pod %s is %s, by the API", pod.Name, state),
				Attrs: map[string]string{"state": state, "pod": pod.Name, "node": pod.Spec.NodeName, "ip": pod.Status.PodIP, "generation": pod.Labels["pod-template-hash"]}})
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { change(nil, podOf(o)) },
		UpdateFunc: func(o, n any) { change(podOf(o), podOf(n)) },
		DeleteFunc: func(o any) { change(podOf(o), nil) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func podOf(o any) *corev1.Pod {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	p, _ := o.(*corev1.Pod)
	return p
}

// podChanges are the states that a pod has come to from one version to the next; nil is no pod.
func podChanges(before, after *corev1.Pod) []string {
	if after == nil {
		return []string{"removed"}
	}
	var states []string
	if before == nil {
		states, before = append(states, "created"), &corev1.Pod{}
	}
	if after.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		states = append(states, "terminating")
	}
	switch was, is := podReady(before), podReady(after); {
	case is && !was:
		states = append(states, "ready")
	case was && !is:
		states = append(states, "unready")
	}
	return states
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

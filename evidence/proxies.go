package evidence

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/reports"
)

// Proxies records the life of the proxies of a live cluster, as far as the API tells it of the pods with these labels in a
// namespace, until ctx ends: started, ready, stopped (told to end) and exited. The name is the proxy's.
func Proxies(ctx context.Context, client kubernetes.Interface, namespace, labels, name string, record reports.Recorder, now func() time.Duration) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = labels }))
	change := func(before, after *corev1.Pod) {
		pod := after
		if pod == nil {
			pod = before
		}
		for _, state := range podChanges(before, after) {
			if word, is := proxyStates[state]; is {
				record.Event(reports.Event{At: now(), Kind: reports.EventProxy, Node: pod.Spec.NodeName, Object: name,
					Text:  fmt.Sprintf("the proxy's pod %s on %s is %s, by the API", pod.Name, pod.Spec.NodeName, state),
					Attrs: map[string]string{"state": word}})
			}
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { change(nil, podOf(o)) },
		UpdateFunc: func(o, n any) { change(podOf(o), podOf(n)) },
		DeleteFunc: func(o any) { change(podOf(o), nil) },
	})
	if err != nil {
		return fmt.Errorf("watching the proxy's pods: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// proxyStates are a proxy's states by those of its pod.
var proxyStates = map[string]string{"created": "started", "ready": "ready", "terminating": "stopped", "removed": "exited"}

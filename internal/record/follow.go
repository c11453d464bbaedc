package record

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// source is how one kind is listed and watched, in all namespaces.
type source struct {
	kind    string
	example runtime.Object
	list    func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch   func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}

func sources(client kubernetes.Interface) []source {
	services, slices := client.CoreV1().Services(metav1.NamespaceAll), client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	nodes, pods := client.CoreV1().Nodes(), client.CoreV1().Pods(metav1.NamespaceAll)
	return []source{
		{kindNode, &corev1.Node{}, listing(nodes.List), nodes.Watch},
		{kindService, &corev1.Service{}, listing(services.List), services.Watch},
		{kindSlice, &discoveryv1.EndpointSlice{}, listing(slices.List), slices.Watch},
		{kindPod, &corev1.Pod{}, listing(pods.List), pods.Watch},
	}
}

func listing[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// follow tells the scribe of everything until ctx ends. client-go's reflector does what every informer does when a watch
// ends, comes too late (410) or is cut: it lists again, and the scribe sees what has changed meanwhile.
func follow(ctx context.Context, client kubernetes.Interface, s *scribe, pause time.Duration) {
	quiet := klog.Logger{} // what happens to watches stands in the recording
	ctx = klog.NewContext(ctx, quiet)
	var all sync.WaitGroup
	for _, from := range sources(client) {
		from = s.overseen(from)
		lister := &cache.ListWatch{ListWithContextFunc: from.list, WatchFuncWithContext: from.watch}
		r := cache.NewReflectorWithOptions(plain{lister}, from.example, sink{s, from.kind}, cache.ReflectorOptions{Name: "record " + from.kind, Logger: &quiet,
			Backoff: &wait.Backoff{Duration: pause, Factor: 2, Steps: 6, Cap: 30 * time.Second, Jitter: 0.5}})
		all.Go(func() { r.RunWithContext(ctx) })
	}
	all.Wait()
}

// overseen is a source of whose errors the scribe knows. What may not be read any more ends the recording, which would go on
// as if nothing happened. A second list tells that a watch was lost, and what changed meanwhile stands at its time.
func (s *scribe) overseen(from source) source {
	out, lists := from, 0
	out.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		all, err := from.list(ctx, o)
		if lists++; lists > 1 && err == nil && o.Continue == "" {
			s.remark(fmt.Sprintf("the watch of %ss was lost; what changed until now stands here", from.kind))
		}
		return all, s.heed(ctx, from.kind, err)
	}
	out.watch = func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		w, err := from.watch(ctx, o)
		return w, s.heed(ctx, from.kind, err)
	}
	return out
}

func (s *scribe) heed(ctx context.Context, kind string, err error) error {
	if (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) && ctx.Err() == nil {
		s.mu.Lock()
		s.refused = fmt.Errorf("watching %ss: %w", kind, err)
		s.mu.Unlock()
		s.stopOnce.Do(func() { close(s.stop) })
	}
	return err
}

// plain lists without the streaming list of KEP-3157, which API servers up to 1.31 do not have.
type plain struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go's reflector (k8s.io/client-go/util/watchlist).
func (plain) IsWatchListSemanticsUnSupported() bool { return true }

// sink hands what a reflector finds to the scribe.
type sink struct {
	*scribe
	kind string
}

// Add tells of an object that came.
func (k sink) Add(o any) error { k.seen(k.kind, o); return nil }

// Update tells of an object that changed.
func (k sink) Update(o any) error { k.seen(k.kind, o); return nil }

// Delete tells of an object that is gone.
func (k sink) Delete(o any) error { k.lost(k.kind, o); return nil }

// Replace tells of all objects that there are.
func (k sink) Replace(all []any, _ string) error { k.list(k.kind, all); return nil }

// Resync does nothing: nothing is kept that has to be told again.
func (sink) Resync() error { return nil }

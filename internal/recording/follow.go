package recording

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

// follow passes all objects to the timeline writer until ctx ends. When a watch ends, expires (410) or is cut, client-go's reflector
// lists again, and the timeline writer records the difference.
func follow(ctx context.Context, client kubernetes.Interface, s *timelineWriter, pause time.Duration) {
	quiet := klog.Logger{} // the recording notes lost watches
	ctx = klog.NewContext(ctx, quiet)
	var all sync.WaitGroup
	for _, from := range sources(client) {
		from = s.withErrors(from)
		lister := &cache.ListWatch{ListWithContextFunc: from.list, WatchFuncWithContext: from.watch}
		r := cache.NewReflectorWithOptions(pagedList{lister}, from.example, sink{s, from.kind}, cache.ReflectorOptions{Name: "record " + from.kind, Logger: &quiet,
			Backoff: &wait.Backoff{Duration: pause, Factor: 2, Steps: 6, Cap: 30 * time.Second, Jitter: 0.5}})
		all.Go(func() { r.RunWithContext(ctx) })
	}
	all.Wait()
}

// withErrors reports the list and watch errors of a source. Forbidden or Unauthorized ends the recording. A second list means that a
// watch was lost: changes in between are recorded at the time of that list.
func (s *timelineWriter) withErrors(from source) source {
	out, lists := from, 0
	out.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		all, err := from.list(ctx, o)
		if lists++; lists > 1 && err == nil && o.Continue == "" {
			s.comment(fmt.Sprintf("the watch of %ss was lost; changes since then are recorded here", from.kind))
		}
		return all, s.noteForbidden(ctx, from.kind, err)
	}
	out.watch = func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		w, err := from.watch(ctx, o)
		return w, s.noteForbidden(ctx, from.kind, err)
	}
	return out
}

// noteForbidden ends the recording after an error of missing rights.
func (s *timelineWriter) noteForbidden(ctx context.Context, kind string, err error) error {
	if (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) && ctx.Err() == nil {
		s.mu.Lock()
		s.refused = fmt.Errorf("watching %ss: %w", kind, err)
		s.mu.Unlock()
		s.stopOnce.Do(func() { close(s.stop) })
	}
	return err
}

// plain lists without the streaming list of KEP-3157, which API servers up to 1.31 do not have.
type pagedList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go's reflector (k8s.io/client-go/util/watchlist).
func (pagedList) IsWatchListSemanticsUnSupported() bool { return true }

// sink passes the objects of a reflector to the timeline writer.
type sink struct {
	*timelineWriter
	kind string
}

// Add records a new object.
func (k sink) Add(o any) error { k.update(k.kind, o); return nil }

// Update records a changed object.
func (k sink) Update(o any) error { k.update(k.kind, o); return nil }

// Delete records a deleted object.
func (k sink) Delete(o any) error { k.remove(k.kind, o); return nil }

// Replace records all objects of the kind.
func (k sink) Replace(all []any, _ string) error { k.replaceKind(k.kind, all); return nil }

// Resync does nothing.
func (sink) Resync() error { return nil }

package watch

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// byService is the index of EndpointSlices by the Service they belong to.
const byService = "service"

// proxied selects what a proxy has to look at. A server that does not know selectors sends more, and that does not hurt.
const proxied = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"

// plain is a list and watch that never asks for a streamed list (sendInitialEvents). Servers that ignore that option
// without saying so would leave an informer waiting for the end of a list that never started.
type plain struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks for (util/watchlist).
func (plain) IsWatchListSemanticsUnSupported() bool { return true }

type lister[L runtime.Object] func(context.Context, metav1.ListOptions) (L, error)
type watcher func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)

func informer[L runtime.Object](list lister[L], watch watcher, narrow func(*metav1.ListOptions), example runtime.Object, indexers cache.Indexers) cache.SharedIndexInformer {
	lw := plain{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			narrow(&o)
			return watch(ctx, o)
		},
	}}
	return cache.NewSharedIndexInformer(lw, example, 0, indexers)
}

func onlyProxied(o *metav1.ListOptions) { o.LabelSelector = proxied }

func services(client kubernetes.Interface) cache.SharedIndexInformer {
	api := client.CoreV1().Services("")
	return informer(api.List, api.Watch, onlyProxied, &v1.Service{}, cache.Indexers{})
}

func endpointSlices(client kubernetes.Interface) cache.SharedIndexInformer {
	api := client.DiscoveryV1().EndpointSlices("")
	return informer(api.List, api.Watch, onlyProxied, &discovery.EndpointSlice{}, cache.Indexers{
		byService: func(obj any) ([]string, error) {
			if s, ok := obj.(*discovery.EndpointSlice); ok && s.Labels[discovery.LabelServiceName] != "" {
				return []string{owner(s).String()}, nil
			}
			return nil, nil
		},
	})
}

func nodes(client kubernetes.Interface, name string) cache.SharedIndexInformer {
	api := client.CoreV1().Nodes()
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
	return informer(api.List, api.Watch, only, &v1.Node{}, cache.Indexers{})
}

// slim drops what nobody here reads; with many Services it is most of an object.
func slim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func owner(s *discovery.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discovery.LabelServiceName]}
}

// handler calls changed with each object that appeared, changed (before and after) or vanished.
func handler(changed func(obj any)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(old, now any) {
			changed(old)
			changed(now)
		},
		DeleteFunc: func(obj any) { changed(last(obj)) },
	}
}

// last returns the object of a deletion, also of one that was missed while the watch was lost.
func last(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return obj
}

func (w *Watcher) serviceChanged(obj any) {
	if svc, ok := obj.(*v1.Service); ok {
		w.mark(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, w.listener.Service)
	}
}

// slicesHandler tells with each change since when it is one. An old state of a slice, and its end, tell of none.
func (w *Watcher) slicesHandler() cache.ResourceEventHandlerFuncs {
	changed := func(obj any, news bool) {
		s, ok := obj.(*discovery.EndpointSlice)
		if !ok || s.Labels[discovery.LabelServiceName] == "" {
			return
		}
		var since time.Time
		if text := s.Annotations[v1.EndpointsLastChangeTriggerTime]; news && text != "" {
			since, _ = time.Parse(time.RFC3339Nano, text) // zero when it cannot be read
		}
		w.mark(owner(s), func() { w.listener.Endpoints(since) })
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changed(obj, true) },
		UpdateFunc: func(old, now any) {
			changed(old, false)
			changed(now, true)
		},
		DeleteFunc: func(obj any) { changed(last(obj), false) },
	}
}

func (w *Watcher) nodeHandler() cache.ResourceEventHandlerFuncs {
	seen := func(obj any, exists bool) {
		if n, ok := obj.(*v1.Node); ok && n.Name == w.node {
			w.listener.Eligible(exists && eligible(n))
			if exists {
				w.setNode(primary(n), n.Labels[v1.LabelTopologyZone])
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen(obj, true) },
		UpdateFunc: func(_, now any) { seen(now, true) },
		DeleteFunc: func(obj any) { seen(last(obj), false) },
	}
}

// primary returns the first address of each family, of the first type of which there is any, sorted.
func primary(n *v1.Node) []netip.Addr {
	var all []netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, found := range n.Status.Addresses {
			a, err := netip.ParseAddr(found.Address)
			if err != nil || found.Type != kind || slices.ContainsFunc(all, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
				continue
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

func eligible(n *v1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == autoscalerTaint {
			return false
		}
	}
	return n.DeletionTimestamp == nil
}

// troubled logs that a watch was lost; client-go lists and watches again by itself, with a growing delay.
func (w *Watcher) troubled(what string) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !errors.Is(err, io.EOF) {
			w.log.Warn("watch interrupted", "resource", what, "error", err)
		}
	}
}

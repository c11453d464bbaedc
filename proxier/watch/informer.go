package watch

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// byService is the index of EndpointSlices by their Service.
const byService = "service"

// proxiedSelector selects the objects that a proxy needs. Servers without selectors send more, which is harmless.
const proxiedSelector = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"

// noWatchList is a list and watch that does not use streamed lists (sendInitialEvents). A server that silently
// ignores that option would block an informer forever.
type noWatchList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported implements client-go's util/watchlist.
func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

type listFunc[L runtime.Object] func(context.Context, metav1.ListOptions) (L, error)
type watchFunc func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)

func informer[L runtime.Object](list listFunc[L], watch watchFunc, restrict func(*metav1.ListOptions), example runtime.Object, indexers cache.Indexers) cache.SharedIndexInformer {
	lw := noWatchList{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			restrict(&o)
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			restrict(&o)
			return watch(ctx, o)
		},
	}}
	return cache.NewSharedIndexInformer(lw, example, 0, indexers)
}

func selectProxied(o *metav1.ListOptions) { o.LabelSelector = proxiedSelector }

func services(client kubernetes.Interface) cache.SharedIndexInformer {
	api := client.CoreV1().Services("")
	return informer(api.List, api.Watch, selectProxied, &v1.Service{}, cache.Indexers{})
}

func endpointSlices(client kubernetes.Interface) cache.SharedIndexInformer {
	api := client.DiscoveryV1().EndpointSlices("")
	return informer(api.List, api.Watch, selectProxied, &discovery.EndpointSlice{}, cache.Indexers{
		byService: func(obj any) ([]string, error) {
			if s, ok := obj.(*discovery.EndpointSlice); ok && s.Labels[discovery.LabelServiceName] != "" {
				return []string{serviceOf(s).String()}, nil
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

// dropManagedFields removes managed fields, which are most of a small object and not used.
func dropManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func serviceOf(s *discovery.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discovery.LabelServiceName]}
}

// handler calls changed with each added, updated (old and new) and deleted object.
func handler(changed func(obj any)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(old, now any) {
			changed(old)
			changed(now)
		},
		DeleteFunc: func(obj any) { changed(lastState(obj)) },
	}
}

// lastState returns the object of a deletion, also of one that was missed while the watch was interrupted.
func lastState(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return obj
}

func (w *Watcher) serviceChanged(obj any) {
	if svc, ok := obj.(*v1.Service); ok {
		w.markDirty(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, w.listener.Service)
	}
}

// slicesHandler passes the trigger time of added and new slices to the listener. Old states and deletions have none.
func (w *Watcher) slicesHandler() cache.ResourceEventHandlerFuncs {
	changed := func(obj any, isNew bool) {
		s, ok := obj.(*discovery.EndpointSlice)
		if !ok || s.Labels[discovery.LabelServiceName] == "" {
			return
		}
		var since time.Time
		if text := s.Annotations[v1.EndpointsLastChangeTriggerTime]; isNew && text != "" {
			since, _ = time.Parse(time.RFC3339Nano, text) // zero if it cannot be parsed
		}
		w.markDirty(serviceOf(s), func() { w.listener.Endpoints(since) })
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changed(obj, true) },
		UpdateFunc: func(old, now any) {
			changed(old, false)
			changed(now, true)
		},
		DeleteFunc: func(obj any) { changed(lastState(obj), false) },
	}
}

func (w *Watcher) nodeHandler() cache.ResourceEventHandlerFuncs {
	seen := func(obj any, exists bool) {
		if n, ok := obj.(*v1.Node); ok && n.Name == w.node {
			w.listener.Eligible(exists && eligible(n))
			if exists {
				w.setNode(primaryAddresses(n), n.Labels[v1.LabelTopologyZone])
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen(obj, true) },
		UpdateFunc: func(_, now any) { seen(now, true) },
		DeleteFunc: func(obj any) { seen(lastState(obj), false) },
	}
}

// primaryAddresses returns the first address of each family, from InternalIP before ExternalIP, sorted.
func primaryAddresses(n *v1.Node) []netip.Addr {
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

// logWatchError logs that a watch was interrupted. client-go lists and watches again with increasing delay.
func (w *Watcher) logWatchError(what string) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !errors.Is(err, io.EOF) {
			w.log.Warn("watch interrupted", "resource", what, "error", err)
		}
	}
}

// PodCIDRs returns the pod CIDRs of a Node, or an error if it has none yet. It uses list, since the proxier has no
// get permission.
func PodCIDRs(ctx context.Context, config *rest.Config, node string) ([]netip.Prefix, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the Node %s: %w", node, err)
	}
	for i := range list.Items {
		n := &list.Items[i]
		if n.Name != node || len(n.Spec.PodCIDRs) == 0 {
			continue
		}
		var all []netip.Prefix
		for _, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("parsing the pod CIDRs of the Node %s: %w", node, err)
			}
			all = append(all, p)
		}
		return all, nil
	}
	return nil, fmt.Errorf("the Node %s does not exist, or its spec.podCIDRs is empty", node)
}

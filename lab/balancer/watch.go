package balancer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hitless/hitless/lab/topology"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch disables the streaming list of KEP-3157, which the lab's own API servers need not support.
type listWatch struct{ cache.ListWatch }

// IsWatchListSemanticsUnSupported implements the check of client-go's reflector (k8s.io/client-go/util/watchlist).
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// watch watches Services and Nodes until ctx ends. Services are handled once both lists are complete, because the order
// within a list is not defined.
func (b *Balancer) watch(ctx context.Context) {
	services := b.cfg.Client.CoreV1().Services(metav1.NamespaceAll)
	nodes := b.cfg.Client.CoreV1().Nodes()
	informers := []cache.Controller{
		informer(&corev1.Service{}, &listWatch{cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return services.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return services.Watch(ctx, o)
			}}}, b.onService),
		informer(&corev1.Node{}, &listWatch{cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return nodes.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return nodes.Watch(ctx, o)
			}}}, b.onNode),
	}
	var running sync.WaitGroup
	for _, i := range informers {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	b.awaitLists(ctx, informers)
	running.Wait()
}

func (b *Balancer) awaitLists(ctx context.Context, informers []cache.Controller) {
	for _, i := range informers {
		select {
		case <-ctx.Done():
			return
		case <-i.HasSyncedChecker().Done():
		}
	}
	b.post(b.startServices)
}

// informer calls handle for every added, changed or deleted object, in the order of the API server.
func informer(kind runtime.Object, lw cache.ListerWatcher, handle func(object any, gone bool)) cache.Controller {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: lw, ObjectType: kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { handle(o, false) },
			UpdateFunc: func(_, o any) { handle(o, false) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				handle(o, true)
			},
		}})
	return controller
}

func (b *Balancer) onService(object any, gone bool) {
	svc, ok := object.(*corev1.Service)
	if !ok {
		return
	}
	deleted := gone
	gone = gone || b.guard != nil && svc.DeletionTimestamp != nil
	b.post(func() (err error) {
		if b.guard != nil {
			defer func() {
				if err == nil {
					b.guard.observe(svc, deleted)
				}
			}()
		}
		switch {
		case b.started && gone:
			return b.serviceDeleted(keyOf(svc))
		case b.started:
			return b.serviceChanged(svc)
		case gone:
			delete(b.initial, keyOf(svc))
		default:
			b.initial[keyOf(svc)] = svc
		}
		return nil
	})
}

func (b *Balancer) onNode(object any, gone bool) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	b.post(func() error { return b.nodeChanged(n.Name, b.eligible(n, gone)) })
}

// eligible returns the lab's node for a Node object, or nil if it is deleted, excluded by label or unknown. As in
// Kubernetes' service controller since 1.27 (KEP-3458), readiness and autoscaler taints do not matter: such nodes fail
// their health checks (KEP-3836).
func (b *Balancer) eligible(n *corev1.Node, gone bool) *topology.Node {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	if gone || excluded {
		return nil
	}
	node, err := b.cfg.Net.Node(n.Name)
	if err != nil {
		b.log.Warn("a Node is not behind the balancer", "reason", err)
		return nil
	}
	return node
}

// startServices handles the Services of the initial list in the order of their creation.
func (b *Balancer) startServices() error {
	b.started = true
	first := slices.Collect(maps.Values(b.initial))
	b.initial = nil
	slices.SortFunc(first, func(x, y *corev1.Service) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(keyOf(x), keyOf(y)))
	})
	for _, svc := range b.sortByAddressPriority(first) {
		if err := b.serviceChanged(svc); err != nil {
			return err
		}
	}
	return nil
}

// sortByAddressPriority puts Services with an address first, so that no other Service gets it.
func (b *Balancer) sortByAddressPriority(all []*corev1.Service) []*corev1.Service {
	slices.SortStableFunc(all, func(x, y *corev1.Service) int {
		return cmp.Compare(addressPriority(y), addressPriority(x))
	})
	return all
}

// addressPriority is 2 for a Service with an address, 1 for one that requests an address, otherwise 0.
func addressPriority(svc *corev1.Service) int {
	switch {
	case len(svc.Status.LoadBalancer.Ingress) > 0:
		return 2
	case svc.Spec.LoadBalancerIP != "":
		return 1
	default:
		return 0
	}
}

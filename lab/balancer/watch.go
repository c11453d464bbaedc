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

// listWatch lists and watches without the streaming list of KEP-3157: the lab's own API servers need not know it, and
// a real one serves a plain list as well.
type listWatch struct{ cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go's reflector (k8s.io/client-go/util/watchlist).
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// watch follows Services and Nodes until ctx ends, and begins when both lists are complete: until then the order in
// which objects show up says nothing.
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
			}}}, b.seeService),
		informer(&corev1.Node{}, &listWatch{cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return nodes.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return nodes.Watch(ctx, o)
			}}}, b.seeNode),
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
	b.post(b.begin)
}

// informer calls see for every object that comes, changes or goes, in the order of the API server.
func informer(kind runtime.Object, lw cache.ListerWatcher, see func(object any, gone bool)) cache.Controller {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: lw, ObjectType: kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { see(o, false) },
			UpdateFunc: func(_, o any) { see(o, false) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				see(o, true)
			},
		}})
	return controller
}

func (b *Balancer) seeService(object any, gone bool) {
	svc, ok := object.(*corev1.Service)
	if !ok {
		return
	}
	b.post(func() error {
		switch {
		case b.begun && gone:
			return b.gone(keyOf(svc))
		case b.begun:
			return b.changed(svc)
		case gone:
			delete(b.early, keyOf(svc))
		default:
			b.early[keyOf(svc)] = svc
		}
		return nil
	})
}

func (b *Balancer) seeNode(object any, gone bool) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	b.post(func() error { return b.member(n.Name, b.eligible(n, gone)) })
}

// eligible is the lab's node when the Node object belongs behind the balancer. As with Kubernetes' service controller since
// 1.27 (KEP-3458), neither readiness nor the autoscaler's mark plays a part: a node that is not ready, or is about to be
// removed, fails its health checks (KEP-3836). A Node of which the lab knows nothing has no place where packets could go.
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

// begin takes the Services that were there first, in the order of their creation.
func (b *Balancer) begin() error {
	b.begun = true
	first := slices.Collect(maps.Values(b.early))
	b.early = nil
	slices.SortFunc(first, func(x, y *corev1.Service) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(keyOf(x), keyOf(y)))
	})
	for _, svc := range b.settledFirst(first) {
		if err := b.changed(svc); err != nil {
			return err
		}
	}
	return nil
}

// settledFirst puts the Services that already have an address before those that wait for one, so that the latter
// cannot be given an address that is taken.
func (b *Balancer) settledFirst(all []*corev1.Service) []*corev1.Service {
	slices.SortStableFunc(all, func(x, y *corev1.Service) int {
		return cmp.Compare(claims(y), claims(x))
	})
	return all
}

// claims ranks a Service by how firm its claim on an address is.
func claims(svc *corev1.Service) int {
	switch {
	case len(svc.Status.LoadBalancer.Ingress) > 0:
		return 2
	case svc.Spec.LoadBalancerIP != "":
		return 1
	default:
		return 0
	}
}

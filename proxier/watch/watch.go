// Package watch keeps the Services and EndpointSlices of a cluster, and the proxier's own Node, up to date through
// client-go informers, and reports which Services changed.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/proxier/desired"
)

// autoscalerTaint marks a node that the cluster autoscaler is about to remove (KEP-3836).
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// Listener receives changes immediately, from several goroutines. Its functions must not block, nor call the Watcher.
// Service, Endpoints and Taken are called in the order in which changes become part of a TakeChanged.
type Listener struct {
	Service   func()                // a Service changed
	Endpoints func(since time.Time) // an EndpointSlice changed; since is the time of the pod's change, zero if unknown
	Taken     func()                // TakeChanged was called and returned all earlier changes
	Eligible  func(eligible bool)   // whether the Node should receive traffic
}

// Watcher watches the API; see the package comment. It is safe for concurrent use.
type Watcher struct {
	node     string
	listener Listener
	log      *slog.Logger

	services, slices, nodes cache.SharedIndexInformer
	synced                  []cache.DoneChecker // sync state of Services and EndpointSlices
	nodeSynced              cache.DoneChecker
	nodeTimeout             time.Duration // time limit for the Node

	mu      sync.Mutex
	dirty   map[types.NamespacedName]bool
	addrs   []netip.Addr // of the Node
	zone    string
	changed chan struct{}
}

// New returns a watcher that has not started. It prefers protobuf, a tenth of the work of JSON, but accepts JSON.
func New(config *rest.Config, node string, listener Listener, log *slog.Logger) (*Watcher, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.UserAgent = "hitless-proxier"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	w := &Watcher{node: node, listener: listener, log: log, nodeTimeout: nodeSyncTimeout,
		services: services(client), slices: endpointSlices(client), nodes: nodes(client, node),
		dirty: map[types.NamespacedName]bool{}, changed: make(chan struct{}, 1)}
	if err := w.addHandlers(); err != nil {
		return nil, fmt.Errorf("preparing the informers: %w", err)
	}
	return w, nil
}

func (w *Watcher) addHandlers() error {
	for _, l := range []struct {
		informer cache.SharedIndexInformer
		what     string
		handler  cache.ResourceEventHandlerFuncs
		needed   bool
	}{
		{w.services, "services", handler(w.serviceChanged), true},
		{w.slices, "endpointslices", w.slicesHandler(), true},
		{w.nodes, "nodes", w.nodeHandler(), false},
	} {
		if err := l.informer.SetTransform(dropManagedFields); err != nil {
			return err
		}
		if err := l.informer.SetWatchErrorHandlerWithContext(w.logWatchError(l.what)); err != nil {
			return err
		}
		registration, err := l.informer.AddEventHandler(l.handler)
		if err != nil {
			return err
		}
		if l.needed {
			w.synced = append(w.synced, registration.HasSyncedChecker())
		} else {
			w.nodeSynced = registration.HasSyncedChecker()
		}
	}
	return nil
}

// nodeSyncTimeout bounds the time that the start waits for the Node. Only NodePorts need its addresses.
const nodeSyncTimeout = 10 * time.Second

// Run starts the watches and returns once all Services and EndpointSlices are known, or with the context's error. It
// also waits for the Node for a limited time. Without it, only new NodePorts are delayed. The watches end with the
// context.
func (w *Watcher) Run(ctx context.Context) error {
	for _, i := range []cache.SharedIndexInformer{w.services, w.slices, w.nodes} {
		go i.RunWithContext(ctx)
	}
	for _, all := range w.synced {
		select {
		case <-all.Done():
		case <-ctx.Done():
			return fmt.Errorf("waiting for the first list of Services and EndpointSlices: %w", context.Cause(ctx))
		}
	}
	timeout := time.NewTimer(w.nodeTimeout)
	defer timeout.Stop()
	select {
	case <-w.nodeSynced.Done():
	case <-timeout.C:
		w.log.Warn("the Node is not known yet; new NodePorts on its primary address are delayed", "node", w.node, "waited", w.nodeTimeout)
	case <-ctx.Done():
		return fmt.Errorf("waiting for the Node: %w", context.Cause(ctx))
	}
	return nil
}

// Changed receives after a change since the last TakeChanged.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// TakeChanged returns the Services that changed since the last call, sorted.
func (w *Watcher) TakeChanged() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(w.dirty), desired.CompareNames)
	clear(w.dirty)
	w.listener.Taken()
	select {
	case <-w.changed:
	default:
	}
	return names
}

func (w *Watcher) markDirty(name types.NamespacedName, notify func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[name] = true
	notify()
	w.wake()
}

func (w *Watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// NodeAddresses implements engine.Objects. The addresses stay after the Node object is deleted, since the machine
// still has them.
func (w *Watcher) NodeAddresses() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.addrs
}

// NodeZone implements engine.Objects.
func (w *Watcher) NodeZone() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.zone
}

func (w *Watcher) setNode(addrs []netip.Addr, zone string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.addrs, addrs) || w.zone != zone {
		w.addrs, w.zone = addrs, zone
		w.wake()
	}
}

// Names implements engine.Objects.
func (w *Watcher) Names() []types.NamespacedName {
	keys := w.services.GetStore().ListKeys()
	names := make([]types.NamespacedName, 0, len(keys))
	for _, key := range keys {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err == nil {
			names = append(names, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	return names
}

// Service implements engine.Objects.
func (w *Watcher) Service(name types.NamespacedName) *v1.Service {
	obj, ok, err := w.services.GetStore().GetByKey(name.String())
	if err != nil || !ok {
		return nil
	}
	svc, _ := obj.(*v1.Service)
	return svc
}

// Slices implements engine.Objects.
func (w *Watcher) Slices(name types.NamespacedName) []*discovery.EndpointSlice {
	objs, err := w.slices.GetIndexer().ByIndex(byService, name.String())
	if err != nil {
		return nil
	}
	all := make([]*discovery.EndpointSlice, 0, len(objs))
	for _, obj := range objs {
		if s, ok := obj.(*discovery.EndpointSlice); ok {
			all = append(all, s)
		}
	}
	return all
}

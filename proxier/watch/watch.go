// Package watch keeps the Services and EndpointSlices of a cluster, and the proxier's own Node, up to date through
// client-go informers, and says which Services changed since it was last asked. It decides nothing about them.
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

// Listener is told of changes at once, from several goroutines. It must not block, nor call the watcher. Service,
// Endpoints and Taken are told in the order in which changes become part of a Take.
type Listener struct {
	Service   func()                // a Service changed
	Endpoints func(since time.Time) // an EndpointSlice changed; since the pod did, zero where nothing says when
	Taken     func()                // Take was called: all earlier changes are known to the caller
	Eligible  func(eligible bool)   // the Node is, or is not, one that should get traffic
}

// Watcher is described in the package comment. It is safe for concurrent use.
type Watcher struct {
	node     string
	listener Listener
	log      *slog.Logger

	services, slices, nodes cache.SharedIndexInformer
	delivered               []cache.DoneChecker // Services and EndpointSlices
	nodeKnown               cache.DoneChecker
	patience                time.Duration // with the Node

	mu      sync.Mutex
	dirty   map[types.NamespacedName]bool
	addrs   []netip.Addr // of the Node, as last seen
	zone    string
	changed chan struct{}
}

// New returns a watcher that has not started. Answers are asked for as protobuf, a tenth of the work of JSON, which thin API
// servers may give instead.
func New(config *rest.Config, node string, listener Listener, log *slog.Logger) (*Watcher, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.UserAgent = "hitless-proxier"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	w := &Watcher{node: node, listener: listener, log: log, patience: nodePatience,
		services: services(client), slices: endpointSlices(client), nodes: nodes(client, node),
		dirty: map[types.NamespacedName]bool{}, changed: make(chan struct{}, 1)}
	if err := w.listen(); err != nil {
		return nil, fmt.Errorf("preparing the informers: %w", err)
	}
	return w, nil
}

func (w *Watcher) listen() error {
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
		if err := l.informer.SetTransform(slim); err != nil {
			return err
		}
		if err := l.informer.SetWatchErrorHandlerWithContext(w.troubled(l.what)); err != nil {
			return err
		}
		registration, err := l.informer.AddEventHandler(l.handler)
		if err != nil {
			return err
		}
		if l.needed {
			w.delivered = append(w.delivered, registration.HasSyncedChecker())
		} else {
			w.nodeKnown = registration.HasSyncedChecker()
		}
	}
	return nil
}

// nodePatience is how long the start waits for the Node. Its addresses are needed for NodePorts only.
const nodePatience = 10 * time.Second

// Run starts to watch and returns when all Services and EndpointSlices are known, or with the context's error. It waits
// for the Node too, since NodePorts stand on its addresses; but only for a while, and without it the rest works, and NodePorts
// that an earlier process served. The watching ends with the context.
func (w *Watcher) Run(ctx context.Context) error {
	for _, i := range []cache.SharedIndexInformer{w.services, w.slices, w.nodes} {
		go i.RunWithContext(ctx)
	}
	for _, all := range w.delivered {
		select {
		case <-all.Done():
		case <-ctx.Done():
			return fmt.Errorf("waiting for the first list of Services and EndpointSlices: %w", context.Cause(ctx))
		}
	}
	patience := time.NewTimer(w.patience)
	defer patience.Stop()
	select {
	case <-w.nodeKnown.Done():
	case <-patience.C:
		w.log.Warn("the Node is not known yet; new NodePorts on its primary address will follow", "node", w.node, "waited", w.patience)
	case <-ctx.Done():
		return fmt.Errorf("waiting for the Node: %w", context.Cause(ctx))
	}
	return nil
}

// Changed receives when something changed since the last Take.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Take returns the Services that changed since the last Take, sorted.
func (w *Watcher) Take() []types.NamespacedName {
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

func (w *Watcher) mark(name types.NamespacedName, tell func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[name] = true
	tell()
	w.wake()
}

func (w *Watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// NodeAddresses implements engine.Objects. A Node that is gone leaves its addresses behind: the machine still has them.
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

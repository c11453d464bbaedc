// Package kubelet is the lab's stand-in for the kubelet: deliberately small, and honest about what it is. It runs the
// pods that are bound to one node: a namespace with an address for each pod, a process for each container, readiness,
// liveness and startup probes, preStop, SIGTERM, the grace period and SIGKILL, restarts, and the status reports from
// which the real controllers conclude what they would with a real kubelet.
//
// It is not a container runtime: nothing is pulled, mounted or confined. An image whose name contains "agnhost" is played
// by the lab's backend, one that is called "hitless" by this program (fleet-worker); any other image ends in ErrImagePull. What it does not play (init containers, postStart, volumes'
// contents, values from ConfigMaps and Secrets, gRPC and HTTPS probes, resource limits) is refused with a status that
// says so, but for volumes and limits, which are ignored.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// Program is how to start the program that plays `agnhost`: Path with Args and then the container's own arguments.
type Program struct {
	Path string
	Args []string
}

// Config says which node to play and with what.
type Config struct {
	Node     *topology.Node
	Client   kubernetes.Interface
	Procs    *procs.Supervisor
	Backend  Program
	Recorder record.Recorder
	// Now is the time since the run started, for the record.
	Now func() time.Duration
	// Silent keeps the kubelet from writing to the API: no status, no lease, no deletion of ended pods. It is for replay
	// control planes, which take no writes.
	Silent bool
	// Lease is how often the node's lease is renewed; DefaultLease when 0, never when negative: a control plane without a
	// node lifecycle controller reads no heartbeats.
	Lease time.Duration
	// Relist is how long after its start a container is seen to run: a kubelet hears of it when it next lists the
	// containers, once a second. Probes start then. DefaultRelist when 0.
	Relist time.Duration
	// Log takes what goes wrong; slog.Default() when nil.
	Log *slog.Logger
}

// The periods of a kubelet with its default configuration: nodeLeaseDurationSeconds is 40 and a lease is renewed four
// times in it; the generic pod lifecycle event generator lists containers once a second.
const (
	DefaultLease  = 10 * time.Second
	DefaultRelist = time.Second
)

// Run plays the kubelet of a node until ctx ends. The end of ctx is the node losing power: every process of its pods is
// killed, their wires are taken away, and the API hears nothing of it, except that the lease is not renewed any more.
// A later Run for the same node is the node coming back: pods still bound to it are started again.
func Run(ctx context.Context, config Config) error {
	k, err := newKubelet(config)
	if err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	k.host = &nodeHost{node: config.Node, procs: config.Procs}
	k.run(ctx)
	return nil
}

// kubelet plays one node.
type kubelet struct {
	Config
	name      string
	host      host
	addresses *addresses

	// pods is used by the informer's goroutine alone.
	pods map[types.UID]*pod
	live sync.WaitGroup
}

func newKubelet(c Config) (*kubelet, error) {
	if c.Node == nil || c.Client == nil || c.Recorder == nil || c.Now == nil {
		return nil, errors.New("a node, a client, a recorder and a clock (Node, Client, Recorder, Now) must be given")
	}
	if c.Backend.Path == "" {
		return nil, errors.New("the program that plays agnhost (Backend.Path) must be given")
	}
	if !c.Node.PodCIDR.Addr().Is4() {
		return nil, fmt.Errorf("the pod range %s of %s is not of IPv4, the lab's only family", c.Node.PodCIDR, c.Node.Name)
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Relist == 0 {
		c.Relist = DefaultRelist
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	name := c.Node.Name
	c.Log = c.Log.With("node", name)
	return &kubelet{Config: c, name: name, pods: map[types.UID]*pod{}, addresses: newAddresses(c.Node.PodCIDR)}, nil
}

func (k *kubelet) run(ctx context.Context) {
	if !k.Silent {
		k.live.Go(func() { k.heartbeat(ctx) })
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: k.boundPods(),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { k.observe(ctx, o) },
			UpdateFunc: func(_, o any) { k.observe(ctx, o) },
			DeleteFunc: k.forget,
		},
	})
	informer.RunWithContext(ctx)
	k.live.Wait()
}

// boundPods lists and watches the pods that the scheduler bound to the node.
func (k *kubelet) boundPods() cache.ListerWatcher {
	selector := fields.OneTermEqualSelector("spec.nodeName", k.name).String()
	api := k.Client.CoreV1().Pods(metav1.NamespaceAll)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return api.Watch(ctx, o)
		},
	}, k.Client)
}

// observe takes a pod's newest state. A server that does not select by field sends the pods of other nodes too.
func (k *kubelet) observe(ctx context.Context, o any) {
	object, ok := o.(*corev1.Pod)
	if !ok || object.Spec.NodeName != k.name {
		return
	}
	if p := k.pods[object.UID]; p != nil {
		p.mail.put(object, false)
		return
	}
	if object.DeletionTimestamp == nil && ended(object.Status.Phase) {
		return // it ended in an earlier life of the node
	}
	p := newPod(k, object)
	k.pods[object.UID] = p
	k.live.Go(func() { p.run(ctx) })
}

// forget takes the news that a pod is gone from the API; what is left of it is ended.
func (k *kubelet) forget(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	object, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	if p := k.pods[object.UID]; p != nil {
		p.mail.put(object, true)
		delete(k.pods, object.UID)
	}
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// mailbox holds the newest state of a pod; older states that were not read are dropped, as a kubelet does.
type mailbox struct {
	mu     sync.Mutex
	object *corev1.Pod
	gone   bool
	signal chan struct{}
}

func newMailbox() mailbox { return mailbox{signal: make(chan struct{}, 1)} }

func (m *mailbox) put(object *corev1.Pod, gone bool) {
	m.mu.Lock()
	m.object, m.gone = object, m.gone || gone
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() (*corev1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.object, m.gone
}

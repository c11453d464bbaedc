// Package kubelet is the lab's replacement for the kubelet. It runs the pods that are bound to one node: a network
// namespace and address for each pod, a process for each container, readiness, liveness and startup probes, hooks,
// SIGTERM, the grace period, SIGKILL, restarts, and status reports for the real controllers.
//
// It is not a container runtime: it pulls and confines nothing. By default pods are stand-ins without files. An image whose
// name contains "agnhost" runs the lab's backend, an image named "hitless" runs this program (fleet-worker), an image
// "kube-proxy:VERSION" runs the kube-proxy of that version, and any other image ends in ErrImagePull. Init containers,
// postStart, values from ConfigMaps and Secrets, gRPC and HTTPS probes are refused with a status that says so. Volumes and
// resource limits are ignored.
//
// With Config.Workloads pods run the programs of the images in package images, each container in a root of its own: volumes,
// variables, init containers, sidecars, all probes and hooks, DNS settings, host ports, and limits of ephemeral storage. The
// kubelet then serves exec, attach, logs and port-forward over HTTPS. Users other than root, terminals, shared process
// namespaces, block devices and other volumes are refused by name. Other limits, capabilities and security profiles are
// ignored. ConfigMaps, Secrets and tokens are those of the pod's start. In both modes the only file of a kube-proxy is
// ProxyKubeconfig.
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

// Program is the command that runs `agnhost`: Path with Args, followed by the container's arguments.
type Program struct {
	Path string
	Args []string
}

// Config configures the kubelet of a node.
type Config struct {
	Node    *topology.Node
	Client  kubernetes.Interface
	Procs   *procs.Supervisor
	Backend Program
	Proxies Proxies // for containers of the kube-proxy image; none when zero
	Plugin  *Plugin // chained after the lab's network; nil for none
	// Workloads make pods run the programs of their images; nil for stand-ins.
	Workloads *Workloads
	Recorder  record.Recorder
	// Now returns the time since the start of the run.
	Now func() time.Duration
	// Silent disables writes to the API: no status, no lease, no deletion of ended pods. It is for replay control
	// planes whose timeline sets the status.
	Silent bool
	// Lease is the interval of lease renewals; 0 means DefaultLease, negative means never, for a control plane without
	// a node lifecycle controller.
	Lease time.Duration
	// Relist is the time from a container's start until the kubelet sees it running and starts its probes; 0 means
	// defaultRelist. A real kubelet lists its containers once a second.
	Relist time.Duration
	// Log gets warnings; slog.Default() when nil.
	Log *slog.Logger
}

// The periods of a kubelet with its default configuration: nodeLeaseDurationSeconds is 40 and a lease is renewed four
// times in it; the generic pod lifecycle event generator lists containers once a second.
const (
	DefaultLease  = 10 * time.Second
	defaultRelist = time.Second
)

// Run runs the kubelet of a node until ctx ends. The end of ctx is a power failure of the node: all processes of its
// pods are killed, their links are removed, and the API gets no write except that lease renewals stop. A later Run for
// the same node starts the pods that are still bound to it.
func Run(ctx context.Context, config Config) error {
	k, err := newKubelet(config)
	if err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	k.host = &nodeHost{config.Node, config.Procs, config.Plugin}
	if k.Workloads == nil {
		k.run(ctx)
		return nil
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		failed <- k.serve(ctx)
		cancel()
	}()
	k.run(ctx)
	return <-failed
}

// kubelet runs the pods of one node.
type kubelet struct {
	Config
	name      string
	host      host
	addresses *addresses

	// pods is used by the informer's goroutine alone.
	pods map[types.UID]*pod
	live sync.WaitGroup

	naming sync.Mutex
	named  map[string]*pod // by namespace/name, for the HTTPS server
}

func newKubelet(c Config) (*kubelet, error) {
	if c.Node == nil || c.Client == nil || c.Recorder == nil || c.Now == nil {
		return nil, errors.New("Config.Node, Client, Recorder and Now are required")
	}
	if c.Backend.Path == "" {
		return nil, errors.New("Config.Backend.Path, the program that runs agnhost, is required")
	}
	if err := c.Plugin.check(); err != nil {
		return nil, err
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Relist == 0 {
		c.Relist = defaultRelist
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	name := c.Node.Name
	c.Log = c.Log.With("node", name)
	return &kubelet{Config: c, name: name, pods: map[types.UID]*pod{}, named: map[string]*pod{}, addresses: newAddresses(c.Node.PodCIDR)}, nil
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

// boundPods lists and watches the pods that are bound to the node.
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

// observe handles a pod's newest state. A server without field selectors also sends pods of other nodes.
func (k *kubelet) observe(ctx context.Context, o any) {
	object, ok := o.(*corev1.Pod)
	if !ok || object.Spec.NodeName != k.name {
		return
	}
	if p := k.pods[object.UID]; p != nil {
		p.updates.put(object, false)
		return
	}
	if object.DeletionTimestamp == nil && ended(object.Status.Phase) {
		return // it ended before the node restarted
	}
	p := newPod(k, object)
	k.pods[object.UID] = p
	k.enroll(p)
	k.live.Go(func() { p.run(ctx) })
}

// forget handles the deletion of a pod from the API and ends the pod.
func (k *kubelet) forget(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	object, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	if p := k.pods[object.UID]; p != nil {
		p.updates.put(object, true)
		delete(k.pods, object.UID)
		k.dismiss(p)
	}
}

func (k *kubelet) enroll(p *pod) {
	k.naming.Lock()
	defer k.naming.Unlock()
	k.named[p.namespace+"/"+p.name] = p
}

// dismiss forgets the name of a pod, unless a newer pod has it.
func (k *kubelet) dismiss(p *pod) {
	k.naming.Lock()
	defer k.naming.Unlock()
	if id := p.namespace + "/" + p.name; k.named[id] == p {
		delete(k.named, id)
	}
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// podUpdates holds the newest state of a pod; older unread states are dropped, as in a kubelet.
type podUpdates struct {
	mu     sync.Mutex
	object *corev1.Pod
	gone   bool
	signal chan struct{}
}

func newPodUpdates() podUpdates { return podUpdates{signal: make(chan struct{}, 1)} }

func (m *podUpdates) put(object *corev1.Pod, gone bool) {
	m.mu.Lock()
	m.object, m.gone = object, m.gone || gone
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

func (m *podUpdates) take() (*corev1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.object, m.gone
}

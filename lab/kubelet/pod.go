package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

// generationLabel is the label of the ReplicaSet generation of a Deployment's pods.
const generationLabel = "pod-template-hash"

// pod runs one pod. The goroutine of run owns its state; other goroutines post functions to it.
type pod struct {
	k          *kubelet
	namespace  string
	name       string
	generation string
	object     *corev1.Pod // the newest state
	updates    podUpdates
	posted     chan func()
	done       chan struct{}
	writer     *writer      // nil when the kubelet is silent
	inits      []*container // init containers and sidecars
	containers []*container
	inputs     *inputs // nil until they are read, and without programs of images

	waiting    bool               // for an address, or for the CNI plugin
	cancelWait context.CancelFunc // ends the wait
	addr       netip.Addr         // the pod's address of the primary family; the node's with hostNetwork
	addrs      []netip.Addr       // of each family
	sandbox    sandbox            // nil while the pod has no network
	startErr   error              // why the pod cannot start

	begun      metav1.Time
	conditions []corev1.PodCondition
	reported   corev1.PodStatus
	ready      bool   // as last recorded
	evicted    string // why the pod was evicted; empty if it was not
	stop       *grace // set once termination has begun
	gone       bool   // the pod is deleted from the API
}

func newPod(k *kubelet, object *corev1.Pod) *pod {
	p := &pod{k: k, namespace: object.Namespace, name: object.Name, generation: object.Labels[generationLabel],
		object: object, updates: newPodUpdates(), posted: make(chan func()), done: make(chan struct{}), begun: metav1.Now()}
	p.updates.put(object, false) // it may be deleted already
	for i := range object.Spec.InitContainers {
		p.inits = append(p.inits, &container{pod: p, spec: &object.Spec.InitContainers[i], init: true})
	}
	for i := range object.Spec.Containers {
		p.containers = append(p.containers, &container{pod: p, spec: &object.Spec.Containers[i]})
	}
	if !k.Silent {
		// When the writer is idle, the newest state may have writes by others.
		p.writer = newWriter(k, object, func() { p.post(func() {}) })
	}
	return p
}

// post runs f on the pod's goroutine; f is dropped when that has ended.
func (p *pod) post(f func()) {
	select {
	case p.posted <- f:
	case <-p.done:
	}
}

// run runs the pod until it has terminated, or ctx ends, which kills it at once.
func (p *pod) run(ctx context.Context) {
	defer close(p.done)
	if p.writer != nil {
		p.k.live.Go(func() { p.writer.run(ctx) })
	}
	p.begin(ctx)
	for !p.hasEnded() {
		p.report()
		select {
		case <-p.updates.signal:
			p.observe(ctx)
		case f := <-p.posted:
			f()
		case <-ctx.Done():
			p.killAll()
			return
		}
	}
	p.retire()
	p.report()
	if p.writer != nil {
		p.writer.finish(p.gone)
	}
}

// begin allocates an address; the containers start once there is one.
func (p *pod) begin(ctx context.Context) {
	if p.object.DeletionTimestamp != nil {
		return
	}
	if p.startErr = p.k.checkSupported(p.object); p.startErr != nil {
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	p.waiting, p.cancelWait = true, cancel
	hostNetwork, text := p.object.Spec.HostNetwork, p.object.Status.PodIP
	p.k.live.Go(func() {
		addr, err := p.k.claim(waiting, hostNetwork, text)
		cancel()
		p.post(func() { p.assignAddr(ctx, addr, err) })
	})
}

// claim returns the address in the pod's status (text), which a timeline may set, or the next free one. A pod with
// hostNetwork gets none.
func (k *kubelet) claim(ctx context.Context, hostNetwork bool, text string) (netip.Addr, error) {
	if hostNetwork {
		return netip.Addr{}, nil
	}
	if text != "" {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("the pod's status has a bad address: %w", err)
		}
		return addr, k.addresses.reserve(ctx, addr)
	}
	return k.addresses.take()
}

func (p *pod) assignAddr(ctx context.Context, addr netip.Addr, err error) {
	p.waiting = false
	if err != nil {
		p.startErr = err
		return
	}
	if p.stop == nil {
		p.sandbox, p.startErr = p.k.host.sandbox(p.name, addr)
	}
	if p.sandbox == nil {
		if addr.IsValid() {
			p.k.addresses.release(addr)
		}
		return
	}
	p.addr, p.addrs = addr, p.k.Node.PodAddrs(addr)
	if !addr.IsValid() {
		p.addr, p.addrs = p.k.Node.Addr, p.k.Node.Addrs()
	}
	p.attach(ctx)
}

// observe handles the newest state from the API.
func (p *pod) observe(ctx context.Context) {
	p.object, p.gone = p.updates.take()
	if !p.gone && p.object.DeletionTimestamp == nil {
		return
	}
	d := deletionGrace(p.object)
	if p.stop == nil {
		p.stop = newGrace(ctx, d)
		p.record(record.PodTerminating, fmt.Sprintf("is to end within %s", d))
		if p.cancelWait != nil {
			p.cancelWait()
		}
	}
	p.stop.shorten(d)
	p.terminateAll(p.stop)
}

// hasEnded reports whether the pod has terminated.
func (p *pod) hasEnded() bool {
	if p.stop == nil || p.waiting {
		return false
	}
	for _, c := range p.all() {
		if c.run != nil {
			return false
		}
	}
	return true
}

// retire removes the pod's network when all containers have ended for good.
func (p *pod) retire() {
	if p.stop != nil {
		p.stop.release()
	}
	if p.sandbox == nil {
		return
	}
	p.recordReadiness(p.status())
	p.detach()
	if err := p.sandbox.remove(); err != nil {
		p.k.Log.Warn("removing the network of a pod", "pod", p.name, "error", err)
	}
	if p.k.Workloads != nil {
		if err := p.k.host.removeVolumes(path.Join(podsDir, string(p.object.UID))); err != nil {
			p.k.Log.Warn("removing the volumes of a pod", "pod", p.name, "error", err)
		}
	}
	p.sandbox = nil
	if !p.object.Spec.HostNetwork {
		p.k.addresses.release(p.addr)
	}
	p.record(record.PodRemoved, "its network is gone")
}

// killAll kills all processes without a write to the API or the record: the node has lost power, or the run is over.
func (p *pod) killAll() {
	if p.stop != nil {
		p.stop.release()
	}
	for _, c := range p.all() {
		c.kill()
	}
	if p.sandbox != nil {
		if err := p.sandbox.remove(); err != nil {
			p.k.Log.Warn("removing the network of a pod", "pod", p.name, "error", err)
		}
	}
}

// after runs f on the pod's goroutine after d.
func (p *pod) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { p.post(f) })
}

// record records a state of the pod. Several goroutines call it, so it reads only fields that do not change.
func (p *pod) record(state record.PodState, text string) {
	body := record.Pod{State: state, Pod: p.name, Node: p.k.name, Generation: p.generation}
	if p.addr.IsValid() {
		body.IP = p.addr.String()
		if len(p.addrs) > 1 {
			body.SecondIP = p.addrs[1].String()
		}
	}
	p.k.Recorder.Event(record.Event{At: p.k.Now(), Node: p.k.name, Object: p.name,
		Text: fmt.Sprintf("pod %s %s: %s", p.name, state, text), Body: body})
}

// retireFinished removes the network when no container will run again. Sidecars end with the others.
func (p *pod) retireFinished(ctx context.Context) {
	if !p.completed() {
		return
	}
	running := false
	for _, c := range p.inits {
		if c.sidecar() && c.run != nil {
			running = true
			c.end(newGrace(c.run.alive, deletionGrace(p.object)))
		}
	}
	if !running {
		p.retire()
	}
}

// completed reports whether all containers but sidecars have ended for good, or an init container has failed for good.
func (p *pod) completed() bool {
	for _, c := range p.inits {
		if c.finished && c.last != nil && c.last.ExitCode != 0 {
			return true
		}
	}
	for _, c := range p.containers {
		if !c.finished {
			return false
		}
	}
	return true
}

package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

// generationLabel is the label by which a Deployment's controller tells the generations of its pods apart.
const generationLabel = "pod-template-hash"

// pod runs one pod. All of its state belongs to the goroutine of run; what happens elsewhere (a process ends, a probe
// changes its mind, a timer fires) is handed to it as a function through post.
type pod struct {
	k          *kubelet
	namespace  string
	name       string
	generation string
	object     *corev1.Pod // the newest state
	mail       mailbox
	happened   chan func()
	done       chan struct{}
	writer     *writer // nil when the kubelet is silent
	containers []*container

	placing bool               // an address is being waited for
	unplace context.CancelFunc // ends the wait
	addr    netip.Addr         // the pod's address; the node's with hostNetwork
	sandbox sandbox            // nil while the pod has no network
	trouble error              // why the pod cannot start

	begun      metav1.Time
	conditions []corev1.PodCondition
	reported   corev1.PodStatus
	ready      bool   // as last recorded
	stop       *grace // not nil once the pod is to end
	gone       bool   // the API does not know the pod any more
}

func newPod(k *kubelet, object *corev1.Pod) *pod {
	p := &pod{k: k, namespace: object.Namespace, name: object.Name, generation: object.Labels[generationLabel],
		object: object, mail: newMailbox(), happened: make(chan func()), done: make(chan struct{}), begun: metav1.Now()}
	p.mail.put(object, false) // it may be deleted already
	for i := range object.Spec.Containers {
		p.containers = append(p.containers, &container{pod: p, spec: &object.Spec.Containers[i]})
	}
	if !k.Silent {
		// Once it is idle, the newest state may show that someone else has written since.
		p.writer = newWriter(k, object, func() { p.post(func() {}) })
	}
	return p
}

// post hands f to the pod's goroutine; it is dropped when that has ended.
func (p *pod) post(f func()) {
	select {
	case p.happened <- f:
	case <-p.done:
	}
}

// run runs the pod until it has ended and is no longer wanted, or ctx ends: then everything of it is killed at once.
func (p *pod) run(ctx context.Context) {
	defer close(p.done)
	if p.writer != nil {
		p.k.live.Go(func() { p.writer.run(ctx) })
	}
	p.begin(ctx)
	for !p.over() {
		p.report()
		select {
		case <-p.mail.signal:
			p.observe(ctx)
		case f := <-p.happened:
			f()
		case <-ctx.Done():
			p.powerOff()
			return
		}
	}
	p.retire()
	p.report()
	if p.writer != nil {
		p.writer.finish(p.gone)
	}
}

// begin looks for an address; the containers start when there is one.
func (p *pod) begin(ctx context.Context) {
	if p.object.DeletionTimestamp != nil {
		return
	}
	if p.trouble = playable(p.object); p.trouble != nil {
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	p.placing, p.unplace = true, cancel
	hostNetwork, text := p.object.Spec.HostNetwork, p.object.Status.PodIP
	p.k.live.Go(func() {
		addr, err := p.k.claim(waiting, hostNetwork, text)
		cancel()
		p.post(func() { p.place(ctx, addr, err) })
	})
}

// claim takes the address that the pod already has in the API (text), as pods of a written timeline do, or the next
// free one. With the node's own network it takes none.
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

func (p *pod) place(ctx context.Context, addr netip.Addr, err error) {
	p.placing = false
	if err != nil {
		p.trouble = err
		return
	}
	if p.stop == nil {
		p.sandbox, p.trouble = p.k.host.sandbox(p.name, addr)
	}
	if p.sandbox == nil {
		if addr.IsValid() {
			p.k.addresses.release(addr)
		}
		return
	}
	if p.addr = addr; !addr.IsValid() {
		p.addr = p.k.Node.Addr
	}
	p.record("created", "its network is laid")
	for _, c := range p.containers {
		c.start(ctx)
	}
}

// observe takes the newest state from the API.
func (p *pod) observe(ctx context.Context) {
	p.object, p.gone = p.mail.take()
	if !p.gone && p.object.DeletionTimestamp == nil {
		return
	}
	d := deletionGrace(p.object)
	if p.stop == nil {
		p.stop = newGrace(ctx, d)
		p.record("terminating", fmt.Sprintf("is to end within %s", d))
		if p.unplace != nil {
			p.unplace()
		}
	}
	p.stop.shorten(d)
	for _, c := range p.containers {
		c.end(p.stop)
	}
}

// over reports whether the pod is to end and nothing of it runs any more.
func (p *pod) over() bool {
	if p.stop == nil || p.placing {
		return false
	}
	for _, c := range p.containers {
		if c.run != nil {
			return false
		}
	}
	return true
}

// retire takes the pod's network away when all containers have ended for good.
func (p *pod) retire() {
	if p.stop != nil {
		p.stop.release()
	}
	if p.sandbox == nil {
		return
	}
	p.recordReadiness(p.status())
	if err := p.sandbox.remove(); err != nil {
		p.k.Log.Warn("removing the network of a pod", "pod", p.name, "error", err)
	}
	p.sandbox = nil
	if !p.object.Spec.HostNetwork {
		p.k.addresses.release(p.addr)
	}
	p.record("removed", "its network is gone")
}

// powerOff kills everything without a word to the API or the record: the node is gone, or the run is over.
func (p *pod) powerOff() {
	if p.stop != nil {
		p.stop.release()
	}
	for _, c := range p.containers {
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

// record adds an event of the pod's life to the history. It is called from several goroutines, and uses only what
// stays as it is once containers run.
func (p *pod) record(state, text string) {
	body := record.Pod{State: state, Pod: p.name, Node: p.k.name, Generation: p.generation}
	if p.addr.IsValid() {
		body.IP = p.addr.String()
	}
	p.k.Recorder.Event(record.Event{At: p.k.Now(), Node: p.k.name, Object: p.name,
		Text: fmt.Sprintf("pod %s %s: %s", p.name, state, text), Body: body})
}

// retireFinished takes the network away when no container will ever run again.
func (p *pod) retireFinished() {
	for _, c := range p.containers {
		if !c.finished {
			return
		}
	}
	p.retire()
}

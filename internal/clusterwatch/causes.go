package clusterwatch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/record"
)

// causes records what the API shows about the watched Services: their endpoints, pods and Kubernetes events, the nodes and the proxy.
type causes struct {
	w      *watcher
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu         sync.Mutex
	namespaces map[string]bool           // that are observed
	services   map[string]bool           // that have or had a lane
	pods       map[string]bool           // namespace/name of those that serve them
	held       map[string][]record.Event // of pods that may serve them, as long as no endpoint tells
	last       silence                   // of the API server; zero without one
}

// silence is a time in which the API did not answer, or refused to.
type silence struct{ from, to time.Duration }

// heldEvents is how many events of one pod are kept until an endpoint tells whether it matters.
const heldEvents = 4

func startCauses(ctx context.Context, w *watcher) *causes {
	ctx, cancel := context.WithCancel(ctx)
	c := &causes{w: w, ctx: ctx, cancel: cancel, namespaces: map[string]bool{}, services: map[string]bool{}, pods: map[string]bool{}, held: map[string][]record.Event{}}
	if w.canFollow("nodes") {
		c.run(func() error { return observers.WatchNodes(ctx, w.cluster.Client, w.record, w.now) })
		if w.canFollow("events") && w.o.Namespace == "" { // those of nodes are in the namespace default
			c.run(func() error {
				return observers.WatchEvents(ctx, w.cluster.Client, "default", aboutNode, w.record, w.now)
			})
		}
	}
	startProxy(c)
	return c
}

func aboutNode(r corev1.ObjectReference) bool { return r.Kind == "Node" }

// run runs an observer. It fails only when it is set up wrongly.
func (c *causes) run(observe func() error) {
	c.all.Go(func() {
		if err := observe(); err != nil {
			c.w.remark("warning", err.Error())
		}
	})
}

func (c *causes) stop() {
	c.cancel()
	c.all.Wait()
}

// about begins to observe what a Service depends on.
func (c *causes) about(service string) {
	namespace, _, _ := strings.Cut(service, "/")
	c.mu.Lock()
	c.services[service] = true
	begun := c.namespaces[namespace]
	c.namespaces[namespace] = true
	c.mu.Unlock()
	if begun {
		return
	}
	r, client, now := filter{c, namespace}, c.w.cluster.Client, c.w.now
	if c.w.canFollow("endpointslices") {
		c.run(func() error { return observers.WatchAPI(c.ctx, client, namespace, r, now) })
	}
	if c.w.canFollow("pods") {
		c.run(func() error { return observers.WatchPods(c.ctx, client, namespace, r, now) })
	}
	if c.w.canFollow("events") {
		about := func(o corev1.ObjectReference) bool { return c.concerns(o, namespace) }
		c.run(func() error { return observers.WatchEvents(c.ctx, client, namespace, about, c.w.record, now) })
	}
}

// concerns reports whether a Kubernetes event is about a watched Service or a pod that serves one.
func (c *causes) concerns(o corev1.ObjectReference, namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := namespace + "/" + o.Name
	return o.Kind == "Service" && c.services[name] || o.Kind == "Pod" && c.pods[name]
}

// filter records the events of one namespace that are about watched Services, with the namespace in their names.
type filter struct {
	*causes
	namespace string
}

// Attempt is not used: observers make none.
func (filter) Attempt(record.Attempt) {}

// Event records an event. Those of a pod wait until an endpoint tells that it serves a watched Service.
func (f filter) Event(e record.Event) {
	switch body := e.Body.(type) {
	case record.Endpoint:
		body.Service = f.namespace + "/" + body.Service
		if body.Pod != "" {
			body.Pod = f.namespace + "/" + body.Pod
			e.Object = body.Pod
		}
		e.Body = body
		if f.served(body.Service, body.Pod) {
			f.w.record.Event(e)
		}
	case record.Pod:
		body.Pod = f.namespace + "/" + body.Pod
		e.Object, e.Body = body.Pod, body
		if f.hold(body.Pod, e) {
			f.w.record.Event(e)
		}
	}
}

// served notes that a pod serves a Service, and records what is held about it. It returns false for a Service without a lane.
func (c *causes) served(service, pod string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.services[service] {
		return false
	}
	if pod != "" && !c.pods[pod] {
		c.pods[pod] = true
		for _, e := range c.held[pod] {
			c.w.record.Event(e)
		}
		delete(c.held, pod)
	}
	return true
}

// hold keeps an event of a pod that is not known to serve a watched Service. It returns true for one that is.
func (c *causes) hold(pod string, e record.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := e.Body.(record.Pod).State == record.PodRemoved
	if c.pods[pod] {
		if removed {
			delete(c.pods, pod)
		}
		return true
	}
	if removed {
		delete(c.held, pod)
		return false
	}
	held := append(c.held[pod], e)
	c.held[pod] = held[max(0, len(held)-heldEvents):]
	return false
}

// silence records a time in which the API did not answer.
func (w *watcher) silence(from, to time.Time) {
	at := w.now()
	begin, end := max(0, at-time.Since(from)), max(0, at-time.Since(to))
	w.causes.noteSilence(silence{begin, end})
	w.apiEvent(begin, record.APIAway, fmt.Sprintf("the API server did not answer for %.1f s from here on: changes in that time are late in this record, or missing", (end-begin).Seconds()))
	w.apiEvent(end, record.APIBack, "the API server answers again")
}

func (c *causes) noteSilence(s silence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = s
}

// stillSilent records that the API does not answer at the end of the watch.
func (w *watcher) stillSilent() {
	if since, _ := w.cluster.Silence(); !since.IsZero() {
		w.apiEvent(max(0, w.now()-time.Since(since)), record.APIAway, "the API server did not answer from here on until the end of the watch: changes in that time are missing in this record")
	}
}

func (w *watcher) apiEvent(at time.Duration, state record.APIState, text string) {
	w.record.Event(record.Event{At: at, Object: "API server", Text: text, Body: record.API{State: state}})
	w.o.Progress(fmt.Sprintf("+%.1f s  %s", at.Seconds(), text))
}

// longestPause is the longest pause of an informer between two tries: client-go waits 30 s, and up to as long again at random.
const longestPause = time.Minute

// lateBy is how long after a silence of the API its changes may become known.
const lateBy = longestPause + 5*time.Second

// awayUntil returns since when the API was away, if a change that was seen at an instant may have happened then.
func (c *causes) awayUntil(at time.Duration) (from time.Duration, away bool) {
	if since, _ := c.w.cluster.Silence(); !since.IsZero() {
		return max(0, at-time.Since(since)), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != (silence{}) && at-c.last.to < lateBy {
		return c.last.from, true
	}
	return 0, false
}

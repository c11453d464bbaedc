package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/hitless/hitless/scenarios/timeline"
)

// ControlPlane does to the proxies' API server what happens to real ones, one node at a time.
type ControlPlane interface {
	// Away keeps the node's proxy from its API server until back is called: connections end, and no request is answered.
	Away(node string) (back func())
	// Cut ends the watches of the node's proxy. With expire the next watch of each resource expires too (410 Gone), so that
	// the proxy lists everything again. It returns the resources whose watches were ended, one for each watch.
	Cut(node string, expire bool) []string
	// Delay makes each event reach the node's proxy later, until lift is called.
	Delay(node string, by time.Duration) (lift func())
	// Lose has the next event of a resource (as in paths) never reach the node's proxy, unless it lists again. Then lost is
	// told what it was, from any goroutine.
	Lose(node, resource string, lost func(what string))
	// Watching returns the resources that the node's proxy watches, one for each watch.
	Watching(node string) []string
	// Put makes an object or replaces it, its status too, without a request: a recording can have tens of thousands.
	Put(o k8s.Object) error
}

// nodesOf are the nodes that a step is done to.
func (w *World) nodesOf(s timeline.Step) []string {
	if s.Object == timeline.All {
		return w.Nodes
	}
	return []string{s.Object}
}

// noteWatches keeps how many watches the proxies have, before something is done to them.
func (w *World) noteWatches(nodes []string) error {
	if w.ControlPlane == nil {
		return errors.New("a real API server does not do such things when it is told to; this needs --controlplane replay")
	}
	total := 0
	for _, node := range nodes {
		n := len(w.ControlPlane.Watching(node))
		w.deeds().watches[node] = max(n, w.deeds().watches[node])
		total += n
	}
	if total == 0 {
		return errors.New("no proxy watches anything: there is nothing to end, and nobody would notice")
	}
	return nil
}

func (w *World) apiGoes(_ context.Context, s timeline.Step) error {
	if err := w.noteWatches(w.nodesOf(s)); err != nil {
		return err
	}
	for _, node := range w.nodesOf(s) {
		w.deeds().backs[node] = w.ControlPlane.Away(node)
	}
	w.tell("api server", "the API server is away from the proxies"+ofNode(s))
	return nil
}

// ofNode names the node, when a step is not done to all.
func ofNode(s timeline.Step) string {
	if s.Object == timeline.All {
		return ""
	}
	return " of " + s.Object
}

func (w *World) apiComesBack(_ context.Context, s timeline.Step) error {
	open := 0
	for _, node := range w.nodesOf(s) {
		open += len(w.ControlPlane.Watching(node))
	}
	for _, node := range w.nodesOf(s) {
		if back := w.deeds().backs[node]; back != nil {
			back()
			delete(w.deeds().backs, node)
		}
	}
	if open > 0 {
		return fmt.Errorf("%d watches of proxies were still open at the end: the API server was not away", open)
	}
	w.tell("api server", "the API server is back"+ofNode(s))
	return nil
}

func (w *World) cutWatches(_ context.Context, s timeline.Step) error {
	nodes, expire := w.nodesOf(s), s.Verb == "api expire"
	if err := w.noteWatches(nodes); err != nil {
		return err
	}
	var ended []string
	for _, node := range nodes {
		ended = append(ended, w.ControlPlane.Cut(node, expire)...)
	}
	slices.Sort(ended)
	what := "ended"
	if expire {
		what = "ended and expire"
	}
	w.tell("api server", "watches of proxies"+ofNode(s)+" "+what+": "+strings.Join(ended, " "))
	return nil
}

// delayWatches makes what the proxies watch reach them late; by nothing at all ends that.
func (w *World) delayWatches(_ context.Context, s timeline.Step) error {
	if err := w.noteWatches(w.nodesOf(s)); err != nil {
		return err
	}
	by := s.Duration("by", 0)
	for _, node := range w.nodesOf(s) {
		if lift := w.deeds().delays[node]; lift != nil {
			lift()
			delete(w.deeds().delays, node)
		}
		if by > 0 {
			w.deeds().delays[node] = w.ControlPlane.Delay(node, by)
		}
	}
	w.tell("api server", fmt.Sprintf("what proxies%s watch is %s late", ofNode(s), by))
	return nil
}

// loss is what a step has a node's proxy not hear of.
type loss struct {
	step timeline.Step
	node string
	came atomic.Bool
}

// loseEvents has the next event of a resource, or of each that is watched, not reach the proxies.
func (w *World) loseEvents(_ context.Context, s timeline.Step) error {
	nodes := w.nodesOf(s)
	if err := w.noteWatches(nodes); err != nil {
		return err
	}
	for _, node := range nodes {
		resources := slices.Compact(slices.Sorted(slices.Values(w.ControlPlane.Watching(node))))
		if one := s.Get("resource"); one != "" {
			if !slices.Contains(resources, one) {
				return fmt.Errorf("the proxy of %s does not watch %s but %s: there is nothing to lose", node, one, strings.Join(resources, ", "))
			}
			resources = []string{one}
		}
		l := &loss{step: s, node: node}
		w.deeds().losses = append(w.deeds().losses, l)
		for _, resource := range resources {
			w.ControlPlane.Lose(node, resource, func(what string) {
				l.came.Store(true)
				w.tell("api server", "lost for the proxy of "+node+": "+what)
			})
		}
		w.tell("api server", "the next event for the proxy of "+node+" is lost, of "+strings.Join(resources, ", "))
	}
	return nil
}

// lostNothing is an error when a step was to lose an event and none came. The replay ends with it.
func (w *World) lostNothing() error {
	for _, l := range w.deeds().losses {
		if !l.came.Load() {
			return fmt.Errorf("line %d: %s: until the end no event came that the proxy of %s could have lost", l.step.Line, l.step.Does(), l.node)
		}
	}
	return nil
}

// seeWatching waits until the proxies have as many watches as they had before.
func (w *World) seeWatching(ctx context.Context, s timeline.Step) error {
	if w.ControlPlane == nil {
		return errors.New("a real API server does not tell who watches; this needs --controlplane replay")
	}
	return w.Until(ctx, "the proxies to watch again", s.Duration("within", watchesWithin), func(context.Context) (bool, string, error) {
		n, want, enough := 0, 0, true
		for _, node := range w.Nodes {
			now, before := len(w.ControlPlane.Watching(node)), w.deeds().watches[node]
			n, want, enough = n+now, want+before, enough && now >= before
		}
		return enough, fmt.Sprintf("%d of %d watches", n, want), nil
	})
}

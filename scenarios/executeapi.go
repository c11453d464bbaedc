package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hitless/hitless/scenarios/timeline"
)

// nodesOf are the nodes of a step.
func (w *World) nodesOf(s timeline.Step) []string {
	if s.Object == timeline.All {
		return w.Nodes
	}
	return []string{s.Object}
}

// countWatches stores the number of watches of the proxies before a step on them. No watch at all is an error.
func (w *World) countWatches(nodes []string) (ControlPlane, error) {
	plane, err := w.controlPlane()
	if err != nil {
		return nil, err
	}
	total := 0
	for _, node := range nodes {
		n := len(plane.Watching(node))
		w.state().watchCounts[node] = max(n, w.state().watchCounts[node])
		total += n
	}
	if total == 0 {
		return nil, errors.New("no proxy watches anything: there is nothing to end, and the step would have no effect")
	}
	return plane, nil
}

func (w executor) WithholdAPI(_ context.Context, s timeline.Step) error {
	plane, err := w.countWatches(w.nodesOf(s))
	if err != nil {
		return err
	}
	for _, node := range w.nodesOf(s) {
		w.state().apiReturns[node] = plane.Away(node)
	}
	w.log("api server", "the API server is away from the proxies"+ofNode(s))
	return nil
}

// ofNode names the node of a step on a single node.
func ofNode(s timeline.Step) string {
	if s.Object == timeline.All {
		return ""
	}
	return " of " + s.Object
}

func (w executor) ReturnAPI(_ context.Context, s timeline.Step) error {
	plane, err := w.controlPlane()
	if err != nil {
		return err
	}
	open := 0
	for _, node := range w.nodesOf(s) {
		open += len(plane.Watching(node))
	}
	for _, node := range w.nodesOf(s) {
		if back := w.state().apiReturns[node]; back != nil {
			back()
			delete(w.state().apiReturns, node)
		}
	}
	if open > 0 {
		return fmt.Errorf("%d watches of proxies were still open at the end: the API server was not away", open)
	}
	w.log("api server", "the API server is back"+ofNode(s))
	return nil
}

func (w executor) EndWatches(_ context.Context, s timeline.Step, expire bool) error {
	nodes := w.nodesOf(s)
	plane, err := w.countWatches(nodes)
	if err != nil {
		return err
	}
	var ended []string
	for _, node := range nodes {
		ended = append(ended, plane.Cut(node, expire)...)
	}
	slices.Sort(ended)
	what := "ended"
	if expire {
		what = "ended and expire"
	}
	w.log("api server", "watches of proxies"+ofNode(s)+" "+what+": "+strings.Join(ended, " "))
	return nil
}

// DelayWatches delays the events for the proxies; by=0s ends the delay.
func (w executor) DelayWatches(_ context.Context, s timeline.Step) error {
	plane, err := w.countWatches(w.nodesOf(s))
	if err != nil {
		return err
	}
	by := s.Duration("by", 0)
	for _, node := range w.nodesOf(s) {
		if lift := w.state().apiLifts[node]; lift != nil {
			lift()
			delete(w.state().apiLifts, node)
		}
		if by > 0 {
			w.state().apiLifts[node] = plane.Delay(node, by)
		}
	}
	w.log("api server", fmt.Sprintf("what proxies%s watch is %s late", ofNode(s), by))
	return nil
}

// lostEvent is an event that a step drops for a node's proxy.
type lostEvent struct {
	step timeline.Step
	node string
	came atomic.Bool
}

// LoseEvents drops the next event of a resource, or of each that is watched, for the proxies.
func (w executor) LoseEvents(_ context.Context, s timeline.Step) error {
	nodes := w.nodesOf(s)
	plane, err := w.countWatches(nodes)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		resources := slices.Compact(slices.Sorted(slices.Values(plane.Watching(node))))
		if one := s.Get("resource"); one != "" {
			if !slices.Contains(resources, one) {
				return fmt.Errorf("the proxy of %s does not watch %s but %s: there is nothing to lose", node, one, strings.Join(resources, ", "))
			}
			resources = []string{one}
		}
		l := &lostEvent{step: s, node: node}
		w.state().losses = append(w.state().losses, l)
		for _, resource := range resources {
			plane.Lose(node, resource, func(what string) {
				l.came.Store(true)
				w.log("api server", "lost for the proxy of "+node+": "+what)
			})
		}
		w.log("api server", "the next event for the proxy of "+node+" is lost, of "+strings.Join(resources, ", "))
	}
	return nil
}

// checkLosses returns an error when an event that was to be lost never came.
func (w *World) checkLosses() error {
	for _, l := range w.state().losses {
		if !l.came.Load() {
			return fmt.Errorf("line %d: %s: until the end no event came that the proxy of %s could have lost", l.step.Line, l.step.Action(), l.node)
		}
	}
	return nil
}

// AwaitWatching waits until the proxies have as many watches as before.
func (w executor) AwaitWatching(ctx context.Context, s timeline.Step) error {
	plane, err := w.controlPlane()
	if err != nil {
		return err
	}
	return w.Until(ctx, "the proxies to watch again", s.Duration("within", watchesWithin), func(context.Context) (bool, string, error) {
		n, want, enough := 0, 0, true
		for _, node := range w.Nodes {
			now, before := len(plane.Watching(node)), w.state().watchCounts[node]
			n, want, enough = n+now, want+before, enough && now >= before
		}
		return enough, fmt.Sprintf("%d of %d watches", n, want), nil
	})
}

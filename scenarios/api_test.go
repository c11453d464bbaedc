package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/klient/k8s"
)

// paperAPI is an API server that each node has watches on, and what was done to it.
type paperAPI struct {
	watches  int  // of each node
	deaf     bool // nobody notices that it is away
	hopeless bool // nobody comes back
	gone     map[string]bool
	done     []string
}

func (a *paperAPI) leave(node string, gone bool) {
	if a.gone == nil {
		a.gone = map[string]bool{}
	}
	a.gone[node] = gone
}

func (a *paperAPI) Away(node string) func() {
	a.done = append(a.done, node+" away")
	a.leave(node, !a.deaf)
	return func() {
		a.done = append(a.done, node+" back")
		a.leave(node, a.hopeless)
	}
}

func (a *paperAPI) Cut(node string, expire bool) []string {
	a.done = append(a.done, fmt.Sprintf("%s cut, expire %t", node, expire))
	ended := a.Watching(node)
	a.leave(node, a.hopeless)
	return ended
}

func (a *paperAPI) Delay(node string, by time.Duration) func() {
	a.done = append(a.done, node+" delay "+by.String())
	return func() { a.done = append(a.done, node+" on time") }
}

func (a *paperAPI) Watching(node string) []string {
	if a.gone[node] {
		return nil
	}
	return slices.Repeat([]string{"services"}, a.watches)
}

func (a *paperAPI) Put(o k8s.Object) error {
	a.done = append(a.done, "put "+o.GetName())
	return nil
}

func TestTheAPIServerIsAwayForItsTime(t *testing.T) {
	clock, a := &paperClock{}, &paperAPI{watches: 6}
	w := &World{ControlPlane: a, Recorder: &paperRecord{}, Clock: clock, Nodes: []string{"node-1"}}
	if err := w.apiAway(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	if clock.Now() < 5*time.Minute || !slices.Contains(a.done, "node-1 back") {
		t.Errorf("after %s: %q", clock.Now(), a.done)
	}
	if err := w.relist(t.Context()); err != nil || a.done[len(a.done)-1] != "node-1 cut, expire true" {
		t.Errorf("%v: %q", err, a.done)
	}
}

// What did not happen to the proxies is never a green run.
func TestAnAPIServerThatNobodyMissesIsAnError(t *testing.T) {
	for want, a := range map[string]*paperAPI{
		"no proxy watches": {},
		"was not away":     {watches: 6, deaf: true},
		"0 of 6 watches":   {watches: 6, hopeless: true},
	} {
		w := &World{ControlPlane: a, Recorder: &paperRecord{}, Clock: &paperClock{}, Nodes: []string{"node-1"}}
		if err := w.apiAway(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("away gave %v, want %q", err, want)
		}
	}
	for want, a := range map[string]*paperAPI{"nothing to end": {}, "0 of 6 watches": {watches: 6, hopeless: true}} {
		w := &World{ControlPlane: a, Recorder: &paperRecord{}, Clock: &paperClock{}, Nodes: []string{"node-1"}}
		if err := w.relist(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("relist gave %v, want %q", err, want)
		}
	}
}

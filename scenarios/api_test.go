package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// paperAPI is an API server that six watches are on, and what was done to it.
type paperAPI struct {
	watches  int
	deaf     bool // nobody notices that it is away
	hopeless bool // nobody comes back
	done     []string
}

func (a *paperAPI) Away() func() {
	a.done = append(a.done, "away")
	before := a.watches
	if !a.deaf {
		a.watches = 0
	}
	return func() {
		a.done = append(a.done, "back")
		if !a.hopeless {
			a.watches = before
		}
	}
}

func (a *paperAPI) Relist() []string {
	a.done = append(a.done, "relist")
	ended := a.Watching()
	if a.hopeless {
		a.watches = 0
	}
	return ended
}

func (a *paperAPI) Watching() []string { return slices.Repeat([]string{"services"}, a.watches) }

func TestTheAPIServerIsAwayForItsTime(t *testing.T) {
	clock, a := &paperClock{}, &paperAPI{watches: 6}
	w := &World{ControlPlane: a, Recorder: &paperRecord{}, Clock: clock}
	if err := w.apiAway(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	if clock.Now() < 5*time.Minute || !slices.Contains(a.done, "back") {
		t.Errorf("after %s: %q", clock.Now(), a.done)
	}
	if err := w.relist(t.Context()); err != nil || a.done[len(a.done)-1] != "relist" {
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
		w := &World{ControlPlane: a, Recorder: &paperRecord{}, Clock: &paperClock{}}
		if err := w.apiAway(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("away gave %v, want %q", err, want)
		}
	}
	for want, a := range map[string]*paperAPI{"nothing to end": {}, "0 of 6 watches": {watches: 6, hopeless: true}} {
		w := &World{ControlPlane: a, Recorder: &paperRecord{}, Clock: &paperClock{}}
		if err := w.relist(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("relist gave %v, want %q", err, want)
		}
	}
}

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// fakeAPI is an API server with watches of each node. It stores the injected faults.
type fakeAPI struct {
	watches  int  // of each node
	noEffect bool // watches continue while it is unreachable
	hopeless bool // watches are not opened again
	gone     map[string]bool
	done     []string
	losing   []func(what string)
	cut      func() // called when watches are cut; may be nil
}

func (a *fakeAPI) leave(node string, gone bool) {
	if a.gone == nil {
		a.gone = map[string]bool{}
	}
	a.gone[node] = gone
}

func (a *fakeAPI) Away(node string) func() {
	a.done = append(a.done, node+" away")
	a.leave(node, !a.noEffect)
	return func() {
		a.done = append(a.done, node+" back")
		a.leave(node, a.hopeless)
	}
}

func (a *fakeAPI) Cut(node string, expire bool) []string {
	a.done = append(a.done, fmt.Sprintf("%s cut, expire %t", node, expire))
	if a.cut != nil {
		a.cut()
	}
	ended := a.Watching(node)
	a.leave(node, a.hopeless)
	return ended
}

func (a *fakeAPI) Delay(node string, by time.Duration) func() {
	a.done = append(a.done, node+" delay "+by.String())
	return func() { a.done = append(a.done, node+" on time") }
}

func (a *fakeAPI) Lose(node, resource string, lost func(what string)) {
	a.done = append(a.done, node+" lose "+resource)
	a.losing = append(a.losing, lost)
}

func (a *fakeAPI) Watching(node string) []string {
	if a.gone[node] {
		return nil
	}
	return slices.Repeat([]string{"services"}, a.watches)
}

func (a *fakeAPI) Put(o k8s.Object) error {
	a.done = append(a.done, "put "+o.GetName())
	return nil
}

func TestAPIServerIsUnreachableForTheDuration(t *testing.T) {
	clock, a := &fakeClock{}, &fakeAPI{watches: 6}
	w := &World{Site: siteOf(nil, a), Recorder: &fakeRecord{}, Clock: clock, Nodes: []string{"node-1"}}
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

// A step without effect on the proxies is an error.
func TestUnnoticedAPIOutageIsAnError(t *testing.T) {
	for want, a := range map[string]*fakeAPI{
		"no proxy watches": {},
		"was not away":     {watches: 6, noEffect: true},
		"0 of 6 watches":   {watches: 6, hopeless: true},
	} {
		w := &World{Site: siteOf(nil, a), Recorder: &fakeRecord{}, Clock: &fakeClock{}, Nodes: []string{"node-1"}}
		if err := w.apiAway(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("away gave %v, want %q", err, want)
		}
	}
	for want, a := range map[string]*fakeAPI{"nothing to end": {}, "0 of 6 watches": {watches: 6, hopeless: true}} {
		w := &World{Site: siteOf(nil, a), Recorder: &fakeRecord{}, Clock: &fakeClock{}, Nodes: []string{"node-1"}}
		if err := w.relist(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("relist gave %v, want %q", err, want)
		}
	}
}

// A lost event is recorded. A step that loses no event until the end is an error with its line.
func TestLostEventIsVisibleOrMissed(t *testing.T) {
	for name, c := range map[string]struct {
		step    string
		comes   bool
		done    []string
		wantErr string
	}{
		"lost":               {"api lose node-1 resource=services", true, []string{"node-1 lose services"}, ""},
		"each that is there": {"api lose all", true, []string{"node-1 lose services", "node-2 lose services"}, ""},
		"not watched":        {"api lose node-1 resource=endpoints", true, nil, "line 3: api lose node-1 resource=endpoints: the proxy of node-1 does not watch endpoints but services"},
		"none came":          {"api lose node-1", false, []string{"node-1 lose services"}, "line 3: api lose node-1: until the end no event came"},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := timeline.Parse("f", []byte("hitless timeline 1\nnodes 2\n+0s "+c.step+"\n+1m api cut node-1\n+2m end\n"))
			if err != nil {
				t.Fatal(err)
			}
			a, recorder := &fakeAPI{watches: 6}, &fakeRecord{}
			a.cut = func() {
				for _, lost := range a.losing {
					if c.comes {
						lost("MODIFIED Service default/web")
					}
				}
			}
			w := &World{Nodes: []string{"node-1", "node-2"}, Site: siteOf(nil, a), Recorder: recorder, Clock: &fakeClock{}, run: webRun()}
			err = Replay(parsed).Run(t.Context(), w)
			if c.wantErr == "" && err != nil || c.wantErr != "" && (err == nil || !strings.HasPrefix(err.Error(), c.wantErr)) {
				t.Errorf("the replay gave %v, want %q", err, c.wantErr)
			}
			if got := slices.DeleteFunc(a.done, func(d string) bool { return !strings.Contains(d, "lose") }); !slices.Equal(got, c.done) {
				t.Errorf("%q was done, want %q", got, c.done)
			}
			told := slices.ContainsFunc(recorder.events, func(e record.Event) bool {
				return e.Text == "lost for the proxy of node-1: MODIFIED Service default/web"
			})
			if told != (c.wantErr == "") {
				t.Errorf("the lost event is recorded: %t", told)
			}
		})
	}
}

// slimmer has proxies with fewer watches after their change.
type slimmer struct {
	*changing
	api   *fakeAPI
	after int
}

func (s slimmer) Change(node, subject string) error {
	s.api.watches = s.after
	return s.changing.Change(node, subject)
}

// Another version can have fewer watches, but at least one.
func TestOtherProxyMayHaveFewerWatches(t *testing.T) {
	parsed, err := timeline.Parse("f", []byte("hitless timeline 1\nnodes 1\n+0s api cut all\n+1s proxy stop node-1\n+1s proxy change node-1 to=new\n+2s proxy start node-1\n"+
		"+2s expect watching all within=5s\n+3s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	for after, wantErr := range map[int]bool{6: false, 2: false, 0: true} {
		a := &fakeAPI{watches: 6}
		w := &World{Nodes: []string{"node-1"}, Site: siteOf(slimmer{&changing{runs: map[string]string{"node-1": "old"}}, a, after}, a),
			Recorder: &fakeRecord{}, Clock: &fakeClock{}, run: webRun()}
		if err := Replay(parsed).Run(t.Context(), w); (err != nil) != wantErr {
			t.Errorf("with %d watches afterwards: %v", after, err)
		}
	}
}

package scenarios

import (
	"errors"
	"slices"
	"testing"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// exiting are proxies of which some have exited without a step.
type exiting struct {
	restarting
	exited []string
}

func (e *exiting) Pid(node string) (int, error) {
	if slices.Contains(e.exited, node) {
		return 0, errors.New("no proxy runs")
	}
	return e.restarting.Pid(node)
}

// Steps decide whether a proxy must follow changes. One that exits by itself must, and one that the scenario has stopped,
// frozen or cut off must not.
func TestWhichProxiesMustRecover(t *testing.T) {
	for name, c := range map[string]struct {
		steps   []timeline.Step
		exited  []string
		checked []string
		records record.RecoveryState // the state that is recorded for node-1, if any
	}{
		"all":                  {nil, nil, []string{"node-1", "node-2"}, ""},
		"exited by itself":     {nil, []string{"node-1"}, []string{"node-2"}, record.RecoveryExited},
		"stopped":              {[]timeline.Step{{Verb: "proxy stop", Object: "node-1"}}, nil, []string{"node-2"}, record.RecoveryUnchecked},
		"stopped and started":  {[]timeline.Step{{Verb: "proxy stop", Object: "node-1"}, {Verb: "proxy start", Object: "node-1"}}, nil, []string{"node-1", "node-2"}, ""},
		"frozen":               {[]timeline.Step{{Verb: "proxy freeze", Object: "node-1"}}, nil, []string{"node-2"}, record.RecoveryUnchecked},
		"frozen and continued": {[]timeline.Step{{Verb: "proxy freeze", Object: "node-1"}, {Verb: "proxy thaw", Object: "node-1"}}, nil, []string{"node-1", "node-2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			proxies := &exiting{exited: c.exited}
			proxies.runs = map[string]string{"node-1": "proxy", "node-2": "proxy"}
			recorder := &fakeRecord{}
			w := &World{Nodes: []string{"node-1", "node-2"}, Site: siteOf(proxies, nil), Recorder: recorder, Clock: &fakeClock{}}
			for _, s := range c.steps {
				if err := w.perform(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.runningProxies(); !slices.Equal(got, c.checked) {
				t.Errorf("the check is for %q, want %q", got, c.checked)
			}
			var state record.RecoveryState
			for _, e := range recorder.events {
				if b, is := e.Body.(record.Recovery); is && e.Node == "node-1" {
					state = b.State
				}
			}
			if state != c.records {
				t.Errorf("node-1 is %q, want %q", state, c.records)
			}
			if failed := c.records == record.RecoveryExited; w.run.unrecovered != failed {
				t.Errorf("a proxy has not recovered: %t, want %t", w.run.unrecovered, failed)
			}
		})
	}
}

// The API refuses Endpoints with a subset that has no address.
func TestEndpointsWithoutAddressesHaveNoSubset(t *testing.T) {
	for _, addresses := range [][]string{nil, {"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}} {
		e := (&headless{name: "recovery", addresses: addresses}).endpoints(&World{})
		got := 0
		for _, s := range e.Subsets {
			if len(s.Addresses) == 0 {
				t.Errorf("%v: a subset has no address", addresses)
			}
			got += len(s.Addresses)
		}
		if got != len(addresses) {
			t.Errorf("%v: %d addresses", addresses, got)
		}
	}
}

package scenarios

import (
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// A connection that was begun before a node boots can meet its refusal: the client sends the first packet again. Of the time before the boot only
// refusals are excused, because the loss of packets without an answer is excused already.
func TestRefusalsOfANodeThatBoots(t *testing.T) {
	const off, on = 20 * time.Second, 50 * time.Second
	for name, c := range map[string]struct {
		since time.Duration
		from  []time.Duration // begins of the excuses
	}{
		"off for long":    {off, []time.Duration{on, on - connectTime}},
		"off for 1 s":     {on - time.Second, []time.Duration{on, on - time.Second}},
		"off until after": {on - deadPodsTime, nil}, // the pods are no endpoints any more
	} {
		recorder := &fakeRecord{}
		w := &World{Site: siteOf(nil, nil), Recorder: recorder, Clock: &fakeClock{}, run: webRun()}
		w.state().dark["node-1"] = darkness{c.since, podShare{1, 3}}
		w.excusePowerOn(on, "node-1")
		var from []time.Duration
		for _, e := range recorder.events {
			body := e.Body.(record.Excuse)
			if from = append(from, body.From); body.From < on && (body.Until != on || slices.Contains(body.Classes, record.ConnectTimeout.String()) || !slices.Contains(body.Classes, record.Refused.String())) {
				t.Errorf("%s: %+v", name, body)
			}
		}
		if !slices.Equal(from, c.from) {
			t.Errorf("%s: excuses begin at %v, want %v", name, from, c.from)
		}
	}
}

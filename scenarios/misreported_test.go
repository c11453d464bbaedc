package scenarios

import (
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// heldNodes is a load balancer that has these nodes.
type heldNodes []string

func (h heldNodes) Members(string) ([]string, bool) { return h, true }

// A load balancer with the wrong nodes is the subject's failure, node by node, unless the node's proxy need not follow changes.
func TestWrongAnswersToHealthChecksAreTheSubjects(t *testing.T) {
	for name, c := range map[string]struct {
		has  []string
		dark string
		want []string // nodes whose proxies have failed
	}{
		"all nodes":                {[]string{"node-1", "node-2", "node-3"}, "", nil},
		"one is missing":           {[]string{"node-1", "node-3"}, "", []string{"node-2"}},
		"two are missing":          {[]string{"node-1"}, "", []string{"node-2", "node-3"}},
		"one without power":        {[]string{"node-1", "node-3"}, "node-2", nil},
		"one of two without power": {[]string{"node-1"}, "node-2", []string{"node-3"}},
	} {
		recorder := &fakeRecord{}
		w := &World{Site: siteOf(nil, nil).OfferLoadBalancer(heldNodes(c.has)), Nodes: []string{"node-1", "node-2", "node-3"}, Recorder: recorder, Clock: &fakeClock{}, run: webRun()}
		if c.dark != "" {
			w.state().dark[c.dark] = true
		}
		was := w.run.main.misreported(t.Context(), w, time.Minute)
		var failed []string
		for _, e := range recorder.events {
			if body, is := e.Body.(record.Recovery); is && body.State == recoveryMisreported && body.Took == time.Minute {
				failed = append(failed, e.Node)
			}
		}
		if !slices.Equal(failed, c.want) || was != (len(c.want) > 0) {
			t.Errorf("%s: %v and %t, want %v", name, failed, was, c.want)
		}
	}
}

package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// balancer is a load balancer whose nodes depend on the time.
type balancer struct {
	clock *fakeClock
	nodes func(at time.Duration) []string
}

func (b balancer) Members(string) ([]string, bool) { return b.nodes(b.clock.now), true }

// checks are the default parameters of health checks.
func checks() Params {
	return Params{CheckTarget.Key: CheckTarget.Default, CheckFall.Key: CheckFall.Default, CheckRise.Key: CheckRise.Default, CheckInterval.Key: CheckInterval.Default}
}

// A load balancer that has the wrong nodes for longer than its checks take is the subject's failure, node by node: the scenario goes on.
// It is an error where anything else may be the reason.
func TestWrongAnswersToHealthChecksAreTheSubjects(t *testing.T) {
	always := func(nodes ...string) func(time.Duration) []string {
		return func(time.Duration) []string { return nodes }
	}
	for name, c := range map[string]struct {
		nodes  func(time.Duration) []string
		within string
		target string
		dark   string
		want   []string // nodes whose proxies have failed
		fails  bool
	}{
		"all nodes":                        {nodes: always("node-1", "node-2", "node-3")},
		"one is missing":                   {nodes: always("node-1", "node-3"), want: []string{"node-2"}},
		"two are missing":                  {nodes: always("node-1"), want: []string{"node-2", "node-3"}},
		"one without power":                {nodes: always("node-1", "node-3"), dark: "node-2", fails: true},
		"no node: no Service":              {nodes: always(), fails: true},
		"a wait shorter than the checks":   {nodes: always("node-1", "node-3"), within: "5s", fails: true},
		"a health check of another target": {nodes: always("node-1", "node-3"), target: "healthz", fails: true},
		"another one is missing later": {nodes: func(at time.Duration) []string {
			return map[bool][]string{true: {"node-1", "node-3"}, false: {"node-1", "node-2"}}[at < 40*time.Second]
		}, fails: true},
	} {
		clock, recorder := &fakeClock{}, &fakeRecord{}
		w := &World{Site: siteOf(nil, nil).OfferLoadBalancer(balancer{clock, c.nodes}), Nodes: []string{"node-1", "node-2", "node-3"}, Recorder: recorder, Clock: clock, run: webRun()}
		w.Params = checks()
		if c.target != "" {
			w.Params[CheckTarget.Key] = c.target
		}
		if c.dark != "" {
			w.state().dark[c.dark] = darkness{}
		}
		step := timeline.Step{Verb: "expect balanced", Object: "web"}
		if c.within != "" {
			step.Args = []timeline.Arg{{Key: "within", Value: c.within}}
		}
		err := executor{w}.AwaitBalanced(t.Context(), step)
		var failed []string
		for _, e := range recorder.events {
			if body, is := e.Body.(record.Recovery); is && body.State == record.RecoveryMisreported && strings.Contains(e.Text, e.Node+" fails the load balancer's health checks") {
				failed = append(failed, e.Node)
			}
		}
		if !slices.Equal(failed, c.want) || (err != nil) != c.fails || w.run.unrecovered != (len(c.want) > 0) {
			t.Errorf("%s: %v and %v, want %v", name, failed, err, c.want)
		}
	}
}

// A node that boots and never passes its health checks is the subject's failure. Without any node, anything else may be the reason.
func TestNodeThatDoesNotReturnAfterItsBoot(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  []string
		failed bool // the subject
		fails  bool // the scenario
	}{
		"it returns":             {nodes: []string{"node-1", "node-2"}},
		"it does not":            {nodes: []string{"node-1"}, failed: true},
		"none has the Service":   {fails: true},
		"another one is missing": {nodes: []string{"node-2"}},
	} {
		clock, recorder := &fakeClock{}, &fakeRecord{}
		w := &World{Site: siteOf(nil, nil).OfferLoadBalancer(balancer{clock, func(time.Duration) []string { return c.nodes }}), Nodes: []string{"node-1", "node-2"}, Recorder: recorder, Clock: clock, run: webRun()}
		w.Params = checks()
		err := w.awaitReturn(t.Context(), "node-2")
		if (err != nil) != c.fails || w.run.unrecovered != c.failed || (len(recorder.events) == 1) != c.failed {
			t.Errorf("%s: %v, %+v", name, err, recorder.events)
		}
	}
}

// A node that keeps its place without an endpoint of its own passes its health checks wrongly.
func TestNodeThatStaysWithoutAnEndpoint(t *testing.T) {
	clock, recorder := &fakeClock{}, &fakeRecord{}
	w := &World{Site: siteOf(nil, nil), Nodes: []string{"node-1", "node-2"}, Recorder: recorder, Clock: clock, run: webRun()}
	w.Params = checks()
	k := w.run.main
	k.wrong = map[string]wrongNode{}
	k.noteWrong(w, []string{"node-1", "node-2"}, []string{"node-2"})
	clock.now = w.membershipTime()
	if err := k.judgeMembers(w, w.membershipTime(), context.DeadlineExceeded); err != nil || len(recorder.events) != 1 || !strings.Contains(recorder.events[0].Text, "node-1 passes") {
		t.Errorf("%v, %+v", err, recorder.events)
	}
}

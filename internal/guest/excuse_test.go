//go:build linux

package guest

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
)

// excuses are what the scenario recorded as unavoidable, in order.
func (s *stage) excuses(t *testing.T) (all []record.Event) {
	t.Helper()
	for _, e := range s.events {
		body, is := e.Body.(record.Excuse)
		if !is {
			continue
		}
		if err := body.Valid(); err != nil || e.Text == "" || body.Service != "default/web" || slices.Contains(body.Classes, "misrouted") {
			t.Errorf("an excuse that excuses nothing, or too much: %+v, %v", e, err)
		}
		all = append(all, e)
	}
	return all
}

// expect checks the paths and the nodes of the excuses.
func expect(t *testing.T, excuses []record.Event, want ...string) {
	t.Helper()
	var got []string
	for _, e := range excuses {
		body := e.Body.(record.Excuse)
		word := body.Path
		if e.Node != "" {
			word += " " + e.Node
		}
		if body.Open {
			word += " open"
		}
		got = append(got, word)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the excuses are %q, want %q", got, want)
	}
}

func window(e record.Event) time.Duration {
	body := e.Body.(record.Excuse)
	return body.Until - body.From
}

// A power-off excuses what goes over the node for the time of four health checks, and what goes to its pods for the time after which
// Kubernetes notices. Both are the parameters', whatever the run does.
func TestAPowerOffIsAnExcuseForItsNodeAndItsPods(t *testing.T) {
	for _, what := range []string{"poweroff", "reboot"} {
		s, _, err := runDrain(t, map[string]string{"what": what, "replicas": "2"}, false)
		if err != nil {
			t.Fatal(err)
		}
		all := s.excuses(t)
		expect(t, all, "node node-1", "pods node-1")
		pods := all[1].Body.(record.Excuse)
		if window(all[0]) != 20*time.Second+100*time.Millisecond || window(all[1]) != 57*time.Second || pods.Share <= 0 || pods.Share > 1 || slices.Contains(pods.Classes, "rejected") {
			t.Errorf("%s: %+v", what, all)
		}
	}
	s, _, err := runDrain(t, map[string]string{"what": "poweroff", "replicas": "2", "checkFall": "1", "checkInterval": "2s", "trafficPolicy": "Local"}, false)
	if err != nil {
		t.Fatal(err)
	}
	all := s.excuses(t)
	if expect(t, all, "node node-1"); window(all[0]) != 4*time.Second+100*time.Millisecond {
		t.Errorf("%+v", all)
	}
	s, _, err = runDrain(t, map[string]string{"what": "poweroff", "replicas": "2", "loadBalancer": "haproxy", "trafficPolicy": "Local"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if all = s.excuses(t); window(all[0]) != 30*time.Second+100*time.Millisecond {
		t.Errorf("behind HAProxy: %+v", all)
	}
}

// The pods of a node that boots before Kubernetes has noticed its loss are endpoints until its kubelet has reported their end.
func TestABootIsAnExcuseForTheFormerPods(t *testing.T) {
	for off, want := range map[string][]string{"40s": {"node node-1", "pods node-1", "pods node-1"}, "60s": {"node node-1", "pods node-1"}} {
		s, _, err := runDrain(t, map[string]string{"what": "reboot", "off": off, "replicas": "2"}, false)
		if err != nil {
			t.Fatal(err)
		}
		all := s.excuses(t)
		expect(t, all, want...)
		last, booted := all[len(all)-1], s.stepBegan("boot node-1")
		if body := last.Body.(record.Excuse); off == "40s" && (body.From != booted || window(last) != 4*time.Second || !slices.Contains(body.Classes, "refused")) {
			t.Errorf("booted at %s: %+v", booted, last)
		}
	}
}

// The autoscaler's mark gives the load balancer time: only open connections are lost with the node. Without that time new ones are lost
// too, until the load balancer could have followed the mark.
func TestAMarkedNodeIsAnExcuseForOpenConnections(t *testing.T) {
	for leave, want := range map[string][]string{"30s": {"node node-2 open"}, "5s": {"node node-2", "node node-2 open"}} {
		s, _, err := runDrain(t, map[string]string{"replicas": "1", "what": "scaledown", "leave": leave}, false)
		if err != nil {
			t.Fatal(err)
		}
		all := s.excuses(t)
		for i := range all { // whichever node has no pod
			all[i].Node = "node-2"
		}
		expect(t, all, want...)
		if last := window(all[len(all)-1]); last > 2*time.Second {
			t.Errorf("open connections may fail for %s", last)
		}
	}
}

// A drain that evicts pods, and a scenario that disturbs nothing else, excuse nothing.
func TestOtherStepsAreNoExcuse(t *testing.T) {
	s, _, err := runDrain(t, map[string]string{"replicas": "2"}, false)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s.excuses(t))
	s = newStage(t, "rollout", map[string]string{"antiAffinity": "off"})
	play(t, s, "rollout")
	expect(t, s.excuses(t))
}

// Without pods everything is lost, from the earliest end of the last one until a proxy must have followed the first new one.
func TestNoPodsAreAnExcuse(t *testing.T) {
	for policy, want := range map[string][]string{"Cluster": {"all"}, "Local": {"all", "none", "exits"}} {
		s := newStage(t, "scale", map[string]string{"antiAffinity": "off", "trafficPolicy": policy, "shutdownDelay": "3s"})
		var ready time.Duration
		s.kubelet = func(_ *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus {
			if before != should {
				ready = s.now
			}
			return should
		}
		play(t, s, "scale")
		all := s.excuses(t)
		expect(t, all, want...)
		body, scaled := all[0].Body.(record.Excuse), s.stepBegan("scale to 0")
		if body.From != scaled+3*time.Second || body.Until < ready+2*time.Second || body.Until > ready+4*time.Second {
			t.Errorf("excused from %s to %s; scaled at %s, ready at %s", body.From, body.Until, scaled, ready)
		}
		if policy == "Local" && window(all[1]) != 5*time.Second+100*time.Millisecond {
			t.Errorf("%+v", all[1])
		}
	}
}

// Behind policy Local a pod that serves for a shorter time than the load balancer needs is an excuse for its node.
func TestPodsThatEndTooEarlyAreAnExcuse(t *testing.T) {
	for delay, want := range map[string][]string{"5s": {"exits"}, "17s": {"exits"}, "18s": nil} {
		s := newStage(t, "rollout", map[string]string{"replicas": "1", "trafficPolicy": "Local", "shutdownDelay": delay, "rollouts": "1"})
		play(t, s, "rollout")
		all := s.excuses(t)
		expect(t, all, want...)
		if len(all) == 0 {
			continue
		}
		body := all[0].Body.(record.Excuse)
		if after, _ := time.ParseDuration(delay); body.After != after || body.Most != 17*time.Second+100*time.Millisecond {
			t.Errorf("%+v", body)
		}
	}
	s := newStage(t, "rollout", map[string]string{"replicas": "1", "trafficPolicy": "Cluster", "shutdownDelay": "5s", "rollouts": "1"})
	play(t, s, "rollout")
	expect(t, s.excuses(t))
}

func (s *stage) stepBegan(name string) time.Duration {
	for _, e := range s.events {
		if b, is := e.Body.(record.Step); is && e.Object == name && b.State == "begin" {
			return e.At
		}
	}
	return 0
}

// Without its Service nothing can arrive, until two seconds after it is there again; then the load balancer may need its checks.
func TestNoServiceIsAnExcuse(t *testing.T) {
	s := newStage(t, "recreate", map[string]string{"replicas": "2", "away": "7s"})
	play(t, s, "recreate")
	all := s.excuses(t)
	expect(t, all, "all", "none")
	first, then := all[0].Body.(record.Excuse), all[1].Body.(record.Excuse)
	if deleted := s.stepBegan("delete the Service"); first.From != deleted || first.Until < s.stepBegan("create it again")+2*time.Second ||
		first.Until > s.stepBegan("create it again")+3*time.Second || then.From != first.Until || window(all[1]) != 5*time.Second+100*time.Millisecond {
		t.Errorf("%+v", all)
	}
}

// A foreign rule excuses what it drops as long as it is there; a flush excuses a moment.
func TestInterferenceIsAnExcuse(t *testing.T) {
	for what, want := range map[string]struct {
		policy string
		paths  []string
		least  time.Duration
	}{
		"flush":       {"Local", []string{"node node-1"}, 2 * time.Second},
		"reload":      {"Cluster", []string{"node node-1"}, 2 * time.Second},
		"stale-drop":  {"Local", []string{"node node-1"}, 4 * time.Second},
		"stale-allow": {"Cluster", []string{"pods node-1"}, 4 * time.Second},
	} {
		s := newStage(t, "interference", map[string]string{"what": what, "replicas": "2", "trafficPolicy": want.policy, "lasts": "4s"})
		s.world.Site.OfferCommands(&ruleset{own: 3})
		play(t, s, "interference")
		all := s.excuses(t)
		expect(t, all, want.paths...)
		if w := window(all[0]); w < want.least || w > want.least+time.Second {
			t.Errorf("%s excuses %s", what, w)
		}
	}
}

// A foreign drop rule also drops readiness probes. What it costs ends two seconds after the pods are ready again.
func TestDropExcusesUntilThePodsAreReadyAgain(t *testing.T) {
	s := newStage(t, "interference", map[string]string{"what": "stale-drop", "replicas": "2", "trafficPolicy": "Local", "lasts": "4s"})
	foreign := &ruleset{own: 3}
	s.kubelet = func(pod *corev1.Pod, _, ready corev1.ConditionStatus) corev1.ConditionStatus {
		if pod.Spec.NodeName == "node-1" && len(foreign.rules) > 0 {
			return corev1.ConditionFalse
		}
		return ready
	}
	s.world.Site.OfferCommands(foreign)
	play(t, s, "interference")
	all := s.excuses(t)
	expect(t, all, "node node-1")
	if w := window(all[0]); w <= 6*time.Second || w > 7*time.Second {
		t.Errorf("a rule of 4 s, and pods that are ready at the next probe, excuse %s; want two seconds and a probe more", w)
	}
}

// Tools that fail excuse what is lost over their node from the end of the pod until two seconds after they work again. With policy Local the
// node has no ready pod meanwhile, if the new one is elsewhere, and the load balancer must have time to remove it.
func TestFailingToolsAreAnExcuse(t *testing.T) {
	for policy, want := range map[string]struct {
		most  time.Duration
		paths []string
	}{"Cluster": {2 * time.Second, []string{"node node-1"}}, "Local": {17*time.Second + 100*time.Millisecond, []string{"node node-1", "exits"}}} {
		s, err := failTools(t, &blockable{failed: 1}, policy)
		if err != nil {
			t.Fatal(err)
		}
		all := s.excuses(t)
		expect(t, all, want.paths...)
		work := time.Duration(0)
		for _, e := range s.events {
			if b, is := e.Body.(record.Interference); is && b.State == "end" {
				work = e.At
			}
		}
		body := all[0].Body.(record.Excuse)
		if extra := body.Until - work; extra != 2*time.Second && extra != want.most {
			t.Errorf("%s: the excuse ends %s after the tools work again", policy, extra)
		}
		if begun := s.stepBegan("let the tools of node-1 fail"); body.From < begun+3*time.Second { // shutdownDelay
			t.Errorf("%s: the excuse begins %s after the step, when the pod still served", policy, body.From-begun)
		}
	}
}

//go:build linux

package guest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// The pods of a node that boots before Kubernetes has noticed its loss are endpoints until its kubelet has reported their end. Their
// refusals are unavoidable, also for a connection that was begun in the 3 s before the boot.
func TestABootIsAnExcuseForTheFormerPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for off, want := range map[string][]string{"40s": {"node node-1", "pods node-1", "pods node-1", "pods node-1"}, "60s": {"node node-1", "pods node-1"}} {
			s, _, err := runDrain(t, map[string]string{"what": "reboot", "off": off, "replicas": "2"}, false)
			if err != nil {
				t.Fatal(err)
			}
			all := s.excuses(t)
			expect(t, all, want...)
			if off != "40s" {
				continue
			}
			after, before, booted := all[2], all[3], s.stepBegan("boot node-1")
			if body := after.Body.(record.Excuse); body.From != booted || window(after) != 4*time.Second || !slices.Contains(body.Classes, "refused") {
				t.Errorf("booted at %s: %+v", booted, after)
			}
			// A client that sent its first packet before the boot meets the refusal as well.
			if body := before.Body.(record.Excuse); body.Until != booted || window(before) != 3*time.Second || !slices.Equal(body.Classes, []string{"refused", "rejected"}) {
				t.Errorf("begun before the boot at %s: %+v", booted, before)
			}
		}
	})
}

// The autoscaler's mark gives the load balancer time: only open connections are lost with the node. Without that time new ones are lost
// too, until the load balancer could have followed the mark.
func TestAMarkedNodeIsAnExcuseForOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// A drain that evicts pods, and a scenario that disturbs nothing else, excuse nothing.
func TestOtherStepsAreNoExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, err := runDrain(t, map[string]string{"replicas": "2"}, false)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, s.excuses(t))
		s = newStage(t, "rollout", map[string]string{"antiAffinity": "off"})
		play(t, s, "rollout")
		expect(t, s.excuses(t))
	})
}

// Without pods everything is lost, from the earliest end of the last one until a proxy must have followed the first new one.
func TestNoPodsAreAnExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// Behind policy Local a pod that serves for a shorter time than the load balancer needs is an excuse for its node.
func TestPodsThatEndTooEarlyAreAnExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

func (s *stage) stepBegan(name string) time.Duration {
	for _, e := range s.events {
		if b, is := e.Body.(record.Step); is && e.Object == name && b.State == record.StepBegin {
			return e.At
		}
	}
	return 0
}

// Without its Service nothing can arrive, until two seconds after it is there again; then the load balancer may need its checks.
func TestNoServiceIsAnExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "recreate", map[string]string{"replicas": "2", "away": "7s"})
		play(t, s, "recreate")
		all := s.excuses(t)
		expect(t, all, "all", "none")
		first, then := all[0].Body.(record.Excuse), all[1].Body.(record.Excuse)
		if deleted := s.stepBegan("delete the Service"); first.From != deleted || first.Until < s.stepBegan("create it again")+2*time.Second ||
			first.Until > s.stepBegan("create it again")+3*time.Second || then.From != first.Until || window(all[1]) != 5*time.Second+100*time.Millisecond {
			t.Errorf("%+v", all)
		}
	})
}

// A foreign rule excuses what it drops as long as it is there; a flush excuses a moment.
func TestInterferenceIsAnExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// A foreign drop rule also drops readiness probes. What it costs ends two seconds after the pods are ready again.
func TestDropExcusesUntilThePodsAreReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// failsFor are the parts of a run in which the programs of node-1's proxy fail.
type failsFor struct {
	block, work time.Duration
	excuse      record.Excuse
	text        string
}

// blockTimes finds them in the record. The excuse is the first one.
func (s *stage) blockTimes(t *testing.T) (f failsFor) {
	t.Helper()
	all := s.excuses(t)
	if len(all) == 0 {
		t.Fatal("nothing is excused")
	}
	f.excuse, f.text = all[0].Body.(record.Excuse), all[0].Text
	for _, e := range s.events {
		if b, is := e.Body.(record.Interference); is && b.State == record.InterferenceBegin {
			f.block = e.At
		} else if is {
			f.work = e.At
		}
	}
	return f
}

// A proxy that is blocked while a pod ends excuses the pod's share of what goes over its node, until two seconds after its programs work
// again. With policy Local a node without a ready pod is excused until the load balancer must have removed it.
func TestFailingProgramsAreAnExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			policy string
			late   bool // the replacement is not ready before the programs work again
			extra  time.Duration
			share  float64
			text   string
		}{
			"Cluster":                   {"Cluster", false, 2 * time.Second, 0.5, "and a proxy may take 2s to follow once they work again"},
			"Cluster, late":             {"Cluster", true, 2 * time.Second, 0.5, "and a proxy may take 2s to follow once they work again"},
			"Local, ready on the node":  {"Local", false, 2 * time.Second, 1, "and a proxy may take 2s to follow once they work again"},
			"Local, without ready pods": {"Local", true, 17*time.Second + 100*time.Millisecond, 1, "the load balancer may need 15.1s more to remove the node"},
		} {
			b := &blockable{failed: 1}
			s := newBlockStage(t, b, c.policy)
			s.kubelet = func(_ *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus {
				if c.late && len(b.steps) == 1 && before != corev1.ConditionTrue {
					return before
				}
				return should
			}
			play(t, s, "interference")
			f := s.blockTimes(t)
			if extra := f.excuse.Until - f.work; f.excuse.Path != record.PathNode || f.excuse.Share != c.share || extra != c.extra || !strings.HasSuffix(f.text, c.text) {
				t.Errorf("%s: %q, %+v ends %s after the programs work again; want %s and the share %g", name, f.text, f.excuse, extra, c.extra, c.share)
			}
			if f.excuse.From != f.block+3*time.Second { // shutdownDelay
				t.Errorf("%s: the excuse begins %s after the block", name, f.excuse.From-f.block)
			}
		}
	})
}

// lines stores the timeline of a run.
type lines struct{ strings.Builder }

func (l *lines) Journal(text string) { l.WriteString(text) }

// The replay of the timeline that a run wrote has the same excuse at the same time.
func TestReplayHasTheExcuseOfABlockedProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written lines
		first := newBlockStage(t, &blockable{failed: 1}, "Cluster")
		first.world.Site.OfferJournal(&written)
		play(t, first, "interference")
		parsed, err := timeline.Parse("f", []byte(written.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, written.String())
		}
		set := map[string]string{}
		for _, s := range parsed.Set {
			set[s.Key] = s.Value
		}
		scenario := scenarios.Replay(parsed)
		second := stageOf(t, scenario, set)
		second.world.Site.OfferProxies(&blockable{failed: 1})
		if err := scenarios.Run(t.Context(), scenario, &second.world); err != nil {
			t.Fatal(err)
		}
		one, again := first.blockTimes(t), second.blockTimes(t)
		shift := second.phaseBegan("scenario") - first.phaseBegan("scenario")
		moved := func(a, b time.Duration) bool { return (b - a - shift).Abs() > time.Millisecond } // which a timeline rounds to
		if again.text != one.text || again.excuse.Share != one.excuse.Share || moved(one.excuse.From, again.excuse.From) || moved(one.excuse.Until, again.excuse.Until) {
			t.Errorf("replayed %s later: %q %+v, want %q %+v; of\n%s", shift, again.text, again.excuse, one.text, one.excuse, written.String())
		}
	})
}

func (s *stage) phaseBegan(name string) time.Duration {
	for _, e := range s.events {
		if e.Kind() == record.KindPhase && e.Object == name {
			return e.At
		}
	}
	return 0
}

// playTimeline runs steps on two nodes with a pod each.
func playTimeline(t *testing.T, proxies scenarios.Proxies, steps ...string) (*stage, error) {
	t.Helper()
	text := "hitless timeline 1\nnodes 2\nset replicas=2\nset shutdownDelay=3s\nset trafficPolicy=Cluster\n" + strings.Join(steps, "\n") + "\n"
	parsed, err := timeline.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	scenario := scenarios.Replay(parsed)
	s := stageOf(t, scenario, map[string]string{"replicas": "2", "shutdownDelay": "3s", "trafficPolicy": "Cluster"})
	s.world.Site.OfferProxies(proxies)
	if power, is := proxies.(scenarios.Power); is {
		s.world.Site.OfferPower(power)
	}
	return s, scenarios.Run(t.Context(), scenario, &s.world)
}

// darkBlockable is a blockable fleet whose nodes have power.
type darkBlockable struct {
	powered
	failed int
}

func (b *darkBlockable) Block(string) error              { return nil }
func (b *darkBlockable) FailedCalls(string) (int, error) { return b.failed, nil }

// A proxy that is blocked until the end, or until its node loses power, must have called its programs too.
func TestABlockWithoutAFailedCallIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const vain = "the proxy of node-1 called none of its programs to write while it was blocked"
		for failed, wanted := range map[int]bool{0: true, 1: false} {
			_, err := playTimeline(t, &blockable{failed: failed}, "+0s proxy block node-1", "+1s pod terminate web#1", "+9s end")
			if wanted != (err != nil) || err != nil && !strings.Contains(err.Error(), vain) {
				t.Errorf("%d failed calls until the end: %v", failed, err)
			}
			s, err := playTimeline(t, &darkBlockable{powered: powered{off: map[string]bool{}}, failed: failed}, "+0s proxy block node-1", "+1s pod terminate web#1",
				"+9s node off node-1", "+12s end")
			if wanted != (err != nil) || err != nil && !strings.Contains(err.Error(), vain) {
				t.Errorf("%d failed calls until the node lost power: %v", failed, err)
			}
			if err != nil {
				continue
			}
			if all := s.excuses(t); all[0].Text != "the programs of the proxy of node-1 failed while a pod ended" || window(all[0]) != 5*time.Second {
				t.Errorf("until the node lost power, %+v is excused; want 5 s", all[0])
			}
		}
	})
}

// A block in which no pod ends excuses nothing.
func TestABlockWithoutTheEndOfAPodIsNoExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := playTimeline(t, &blockable{failed: 1}, "+0s proxy block node-1", "+5s proxy unblock node-1", "+6s end")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, s.excuses(t))
	})
}

package museum

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// specimen is a simulated run of an entry: what happens, and what the bug makes of it.
type specimen struct {
	id    string
	setUp func(s *fakeRun)            // steps and pods that no timeline has
	bug   func(s *fakeRun, shift int) // adds what the bug causes, later by shift (ms)
	good  func(s *fakeRun)            // adds what a good proxy causes; nil for nothing
}

// The times of the simulated runs, in ms.
const (
	begin = 10_000 // of the scenario, and of a timeline's first step
	whole = 120_000
)

// stepAt is the time in a simulated run of the first step of a timeline whose name begins with a prefix.
func stepAt(t *testing.T, e Entry, prefix string) int {
	t.Helper()
	for _, s := range e.Timeline.Steps {
		if strings.HasPrefix(s.Name(), prefix) {
			return begin + int(s.At/time.Millisecond)
		}
	}
	t.Fatalf("%s has no step %q", e.ID, prefix)
	return 0
}

func simulated(t *testing.T, id string) (Entry, *fakeRun) {
	t.Helper()
	e, err := Find(id)
	if err != nil {
		t.Fatal(err)
	}
	s := newRun(e)
	s.end = ms(whole)
	if e.Timeline != nil {
		s.end = ms(begin) + e.Timeline.Length() + 20*time.Second
		for _, step := range e.Timeline.Steps {
			if at := begin + int(step.At/time.Millisecond); step.Verb != timeline.End {
				s.step(step.Name(), step.Node(), at, at+100)
			}
		}
	}
	return e, s
}

// twoEnd lets both pods of a rollout terminate and exit five seconds later: first or last that of the flow, web-1, at 20 s.
func twoEnd(first bool) func(s *fakeRun) {
	other := 26_000
	if !first {
		other = 14_000
	}
	return func(s *fakeRun) {
		for pod, at := range map[string]int{"web-1": 20_000, "web-2": other} {
			s.pod(ms(at), pod, "node-1", record.PodTerminating)
			s.pod(ms(at+5000), pod, "node-1", record.PodExited)
		}
	}
}

func exits(at ...int) func(s *fakeRun) {
	return func(s *fakeRun) {
		for _, at := range at {
			s.pod(ms(at), "web-1", "node-1", record.PodExited)
		}
	}
}

// lose adds a loss of new connections on the paths over nodes.
func lose(s *fakeRun, from, to int, class record.Class, nodes ...string) {
	for _, node := range nodes {
		s.losses = append(s.losses, lost(node, from, to, class))
	}
}

// flowUntil lets a UDP flow be answered only until a time.
func flowUntil(at int) func(time.Duration) string {
	return func(now time.Duration) string {
		if now < ms(at) {
			return "web-1"
		}
		return ""
	}
}

func steadyFlow(s *fakeRun) { s.flow = flowUntil(1_000_000) }

// losesFlow lets the flow be lost from a time to the end.
func losesFlow(at int) func(s *fakeRun, shift int) {
	return func(s *fakeRun, shift int) { s.flow = flowUntil(at + shift) }
}

func recreateSteps(s *fakeRun) {
	s.step("delete the Service", "", 24_000, 24_100)
	s.step("create it again", "", 34_000, 54_000)
}

// answersUntil lets the Service answer new connections only until a time.
func answersUntil(at int) func(s *fakeRun) {
	return func(s *fakeRun) { lose(s, at, 10*whole, record.ConnectTimeout, "node-1", "node-2") }
}

func answerARP(s *fakeRun, at int, nodes string) {
	s.event(ms(at), "", "203.0.113.10", record.Check{Client: "load balancer", Target: "arp 203.0.113.10", Got: nodes})
}

func specimens(t *testing.T) []specimen {
	at := func(id, prefix string) int {
		e, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		return stepAt(t, e, prefix)
	}
	flush := at("k8s-134147", "proxy flush")
	stale := at("k8s-135266", "object apply")
	patched := at("k8s-75262", "object patch")
	removed := at("k8s-141371", "object delete")
	hangs := at("k8s-71894", "object delete")
	localNode := at("k8s-65387", "object patch")
	ranges := at("k8s-122614", "object patch")
	hijacked := at("k8s-75290", "object apply")
	addressed := at("k8s-114815", "node address")
	external := at("k8s-121909", "object patch")
	asked := at("k8s-59976", "ask arp")
	emptied := at("k8s-103857", "proxy flush node-2")
	rolled := at("k8s-112604", "workload rollout")
	internal := at("k8s-106497", "object patch")
	firewalled := at("k8s-97824", "node run node-2")
	old := at("k8s-110208", "object apply")
	forwards := at("k8s-68194", "node run node-1 iptables -P")
	shared := at("k8s-129982", "object apply EndpointSlice")
	retargeted := at("k8s-130542", "object patch")
	both := []string{"node-1", "node-2"}
	failedSync := func(s *fakeRun) { lose(s, rolled+20_100, rolled+45_000, record.ConnectTimeout, both...) }
	policySteps := func(s *fakeRun) {
		s.step("change externalTrafficPolicy", "", 20_000, 28_000).step("put back externalTrafficPolicy", "", 50_000, 51_000)
	}
	toPolicy := func(s *fakeRun, shift int) { lose(s, 20_500+shift, 50_500+shift, record.ConnectTimeout, both...) }
	restartSteps := func(s *fakeRun) {
		s.step("restart the proxy of node-1", "node-1", 20_000, 23_000).step("restart the proxy of node-2", "node-2", 60_000, 63_000)
	}
	scaleSteps := func(s *fakeRun) { s.step("scale to 0", "", 20_000, 26_000).step("scale to 2", "", 46_000, 48_000) }
	deleteSteps := func(s *fakeRun) {
		s.step("delete the Service", "", 20_000, 20_100).step("create it again", "", 80_000, 81_000)
	}
	return []specimen{
		{id: "k8s-134147", bug: func(s *fakeRun, shift int) { lose(s, flush+200+shift, whole, record.Refused, "node-1") },
			good: func(s *fakeRun) { lose(s, flush+200, flush+30_000, record.Refused, "node-1") }},
		{id: "k8s-139516", setUp: exits(25_000), bug: func(s *fakeRun, shift int) { lose(s, 25_100+shift, whole, record.ConnectTimeout, both...) }},
		{id: "k8s-135266", bug: func(s *fakeRun, shift int) { lose(s, stale+200+shift, whole, record.Rejected, both...) }},
		{id: "k8s-75262", bug: func(s *fakeRun, shift int) { lose(s, patched+200+shift, whole, record.Rejected, "node-1") }},
		{id: "k8s-125467", setUp: exits(27_000, 57_000), bug: losesFlow(57_000), good: steadyFlow},
		{id: "k8s-105657", setUp: scaleSteps, bug: losesFlow(24_000), good: steadyFlow},
		{id: "k8s-91236", setUp: recreateSteps, bug: losesFlow(34_100), good: steadyFlow},
		{id: "k8s-59368", setUp: twoEnd(true), bug: losesFlow(25_000), good: steadyFlow},
		{id: "k8s-42473", setUp: twoEnd(false), bug: losesFlow(25_000), good: steadyFlow},
		{id: "k8s-71596", setUp: policySteps, bug: toPolicy},
		{id: "k8s-66062", setUp: policySteps, bug: toPolicy},
		{id: "k8s-73154", setUp: restartSteps, bug: func(s *fakeRun, shift int) { lose(s, 22_500+shift, 22_900+shift, record.Rejected, "node-1") }},
		{id: "k8s-75360", setUp: restartSteps, bug: func(s *fakeRun, shift int) { lose(s, 22_500+shift, 23_500+shift, record.ConnectTimeout, "node-1") }},
		{id: "k8s-81775", setUp: twoEnd(true), bug: func(s *fakeRun, shift int) {
			for at := 26_000; at < 90_000; at += 10_000 {
				lose(s, at+shift, at+shift+100, record.ConnectTimeout, "node-1")
			}
		}},
		{id: "k8s-71834", setUp: exits(25_000), bug: func(s *fakeRun, shift int) { lose(s, 25_500+shift, 85_000, record.ConnectTimeout, "node-1") }},
		{id: "k8s-141371", bug: func(s *fakeRun, shift int) { s.flow = flowUntil(1_000_000); answersUntil(removed + 100 + shift)(s) },
			good: func(s *fakeRun) { s.flow = flowUntil(removed + 1000); answersUntil(removed + 100)(s) }},
		{id: "k8s-80403", setUp: deleteSteps, bug: func(s *fakeRun, shift int) {
			if shift > 0 {
				answersUntil(20_100 + shift)(s)
			}
		}, good: answersUntil(20_200)},
		{id: "k8s-96251", setUp: exits(30_000), bug: losesFlow(30_000), good: steadyFlow},
		{id: "k8s-76664", setUp: twoEnd(true), bug: losesFlow(25_000), good: steadyFlow},
		{id: "k8s-71514", setUp: twoEnd(true), bug: losesFlow(20_200), good: steadyFlow},
		{id: "k8s-65387", bug: func(s *fakeRun, shift int) { lose(s, localNode+200+shift, whole, record.ConnectTimeout, "node-1") }},
		{id: "k8s-121909", bug: func(s *fakeRun, shift int) { lose(s, external+200+shift, whole, record.Rejected, "node-1") }},
		{id: "k8s-72236", setUp: exits(10_500), bug: func(s *fakeRun, shift int) { s.unserved = ms(1_100 + shift) },
			good: func(s *fakeRun) { s.unserved = ms(10 * whole) }},
		{id: "k8s-59976", bug: func(s *fakeRun, shift int) { answerARP(s, asked+50+shift, "node-1 node-2") }, good: func(s *fakeRun) { answerARP(s, asked+50, "no node") }},
		{id: "k8s-132456", bug: func(s *fakeRun, shift int) { lose(s, patched+200+shift, 10*whole, record.ConnectTimeout, "node-1") }},
		{id: "k8s-106497", bug: func(s *fakeRun, shift int) { lose(s, internal+200+shift, 10*whole, record.Rejected, "node-2") }},
		{id: "k8s-97824", bug: func(s *fakeRun, shift int) {
			lose(s, firewalled+20_000+shift, 10*whole, record.ConnectTimeout, both...)
		}},
		{id: "k8s-110208", setUp: func(s *fakeRun) { s.pod(ms(500), "web-2", "node-2", record.PodReady) }, bug: func(s *fakeRun, shift int) { lose(s, old+15_000+shift, 10*whole, record.ConnectTimeout, both...) }},
		{id: "k8s-68194", bug: func(s *fakeRun, shift int) { lose(s, forwards+200+shift, 10*whole, record.ConnectTimeout, "node-1") }},
		{id: "k8s-103857", bug: losesFlow(emptied + 200), good: steadyFlow},
		{id: "k8s-105192", bug: losesFlow(at("k8s-105192", "proxy flush node-2") + 200), good: steadyFlow},
		{id: "k8s-112604", setUp: exits(rolled+20_000, rolled+30_000), bug: func(s *fakeRun, shift int) {
			failedSync(s)
			losesFlow(rolled+30_000)(s, shift)
		}, good: func(s *fakeRun) { failedSync(s); steadyFlow(s) }},
		{id: "k8s-129982", bug: func(s *fakeRun, shift int) {
			s.flow = func(now time.Duration) string {
				if now > ms(shared+500+shift) {
					return "web-2"
				}
				return "web-1"
			}
		}, good: steadyFlow},
		{id: "k8s-122614", bug: func(s *fakeRun, shift int) {
			if shift > 0 {
				answersUntil(ranges + shift)(s)
			}
		}, good: answersUntil(ranges + 200)},
		{id: "k8s-116470", setUp: func(s *fakeRun) { s.step("take the power from node-1", "node-1", 20_000, 32_000) },
			bug: func(s *fakeRun, shift int) { lose(s, 20_100+shift, 32_000+shift, record.ConnectTimeout, "node-1") }},
		{id: "k8s-50977", setUp: func(s *fakeRun) { s.step("evict the pods of node-1", "node-1", 20_000, 50_000) },
			bug: func(s *fakeRun, shift int) { lose(s, 20_100+shift, 32_000+shift, record.ConnectTimeout, "node-1") }},
		{id: "k8s-57841", setUp: func(s *fakeRun) { s.step("flap 1 of web-1", "node-1", 20_000, 26_000) },
			bug: func(s *fakeRun, shift int) { s.long = s.end; s.longLost = ms(20_400 + shift) }, good: func(s *fakeRun) { s.long = s.end }},
		{id: "k8s-117205", setUp: func(s *fakeRun) { s.step("flap 1 of web-1", "node-1", 20_000, 20_600) },
			bug: func(s *fakeRun, shift int) {
				s.long, s.longLost, s.longClass = s.end, ms(20_500+shift), record.Reset
			}, good: func(s *fakeRun) { s.long = s.end }},
		{id: "k8s-75290", bug: func(s *fakeRun, shift int) { lose(s, hijacked+200+shift, whole, record.ConnectTimeout, "node-2") },
			good: func(s *fakeRun) { lose(s, hijacked+200, whole, record.ConnectTimeout, "node-1") }},
		{id: "k8s-111661", setUp: exits(40_000), bug: func(s *fakeRun, shift int) { lose(s, 40_100+shift, 10*whole, record.ConnectTimeout, "node-1") }},
		{id: "k8s-114815", bug: func(s *fakeRun, shift int) {
			if s.unserved = ms(10 * whole); shift > 0 {
				s.unserved = ms(addressed + shift)
			}
		}, good: func(s *fakeRun) { s.unserved = ms(addressed + 1000) }},
		{id: "flushed-ruleset", setUp: func(s *fakeRun) { s.step("reload the firewall of node-1", "node-1", 20_000, 20_500) },
			bug: func(s *fakeRun, shift int) { lose(s, 20_400+shift, whole, record.ConnectTimeout, "node-1") }},
		{id: "k8s-106030", setUp: func(s *fakeRun) {
			s.pod(ms(20_000), "web-1", "node-1", record.PodUnready)
			s.pod(ms(50_000), "web-1", "node-1", record.PodReady)
		}, bug: func(s *fakeRun, shift int) { s.otherPod = [2]time.Duration{ms(20_000), ms(20_000 + shift)} }, good: func(s *fakeRun) {
			s.otherPod = [2]time.Duration{ms(20_100), ms(50_000)}
		}},
		{id: "k8s-130542", bug: func(s *fakeRun, shift int) {
			steadyFlow(s)
			s.freshUntil = ms(retargeted + 100 + shift)
		}, good: func(s *fakeRun) { s.flow = flowUntil(retargeted + 200); s.freshUntil = ms(retargeted + 100) }},
		{id: "k8s-71894", bug: func(s *fakeRun, shift int) { s.long = s.end; s.longLost = ms(hangs + 200 + shift) },
			good: func(s *fakeRun) { s.long = s.end }},
	}
}

// record is that of the simulated run, with a cause of losses or none.
func (c specimen) record(t *testing.T, cause func(s *fakeRun)) *Record {
	_, s := simulated(t, c.id)
	if c.setUp != nil {
		c.setUp(s)
	}
	if cause != nil {
		cause(s)
	}
	return s.record(t)
}

// judge returns what the entry's signature finds in that record.
func (c specimen) judge(t *testing.T, cause func(s *fakeRun)) Finding {
	e, err := Find(c.id)
	if err != nil {
		t.Fatal(err)
	}
	return e.Judge(c.record(t, cause))
}

// Each signature finds the loss of its bug, no other one, no loss ten seconds later, and nothing in a run without the trigger.
func TestSignatures(t *testing.T) {
	for _, c := range specimens(t) {
		t.Run(c.id, func(t *testing.T) {
			build := func(cause func(s *fakeRun)) Finding { return c.judge(t, cause) }
			expect := func(name string, f Finding, want ...Answer) {
				t.Helper()
				for _, w := range want {
					if f.Answer == w {
						return
					}
				}
				t.Errorf("%s: %s: %q; want %v", name, f.Answer, f.Reasons, want)
			}
			expect("the bug", build(func(s *fakeRun) { c.bug(s, 0) }), Seen)
			expect("a good proxy", build(c.good), NotSeen)
			expect("ten seconds later", build(func(s *fakeRun) { c.bug(s, 10_000) }), NotSeen, CannotTell)
			expect("no trigger", build(func(s *fakeRun) {
				c.bug(s, 0)
				without(s, record.KindStep)
				without(s, record.KindPod)
			}), CannotTell)
		})
	}
}

// Answers that end with the occasion, and come again ten seconds later, are none of a bug whose answers never end.
func TestAnswersThatBeginLate(t *testing.T) {
	judged := 0
	for _, c := range specimens(t) {
		at := map[string]int{"k8s-80403": 20_200, "k8s-122614": begin + 5200, "k8s-141371": begin + 5200, "k8s-130542": begin + 5200}[c.id]
		if at == 0 {
			continue
		}
		judged++
		f := c.judge(t, func(s *fakeRun) {
			c.bug(s, 0)
			if flow := s.flow; flow != nil {
				s.flow = func(now time.Duration) string {
					if now >= ms(at) && now < ms(at+10_000) {
						return ""
					}
					return flow(now)
				}
			} else {
				lose(s, at, at+10_000, record.ConnectTimeout, "node-1", "node-2")
			}
		})
		if f.Answer != NotSeen {
			t.Errorf("%s: %s: %q", c.id, f.Answer, f.Reasons)
		}
	}
	if judged != 4 {
		t.Errorf("%d bugs were judged", judged)
	}
}

// A loss at the right time and of another class is another bug's.
func TestLossesOfAnotherClass(t *testing.T) {
	judged := 0
	for _, c := range specimens(t) {
		other := map[string]record.Class{"k8s-75360": record.Refused, "k8s-73154": record.ConnectTimeout, "k8s-121909": record.ConnectTimeout, "k8s-132456": record.Rejected,
			"k8s-65387": record.Rejected, "k8s-71894": record.Reset, "k8s-57841": record.Reset, "k8s-117205": record.ReplyTimeout}[c.id]
		if other == 0 {
			continue
		}
		judged++
		f := c.judge(t, func(s *fakeRun) {
			c.bug(s, 0)
			for i := range s.losses {
				s.losses[i].class = other
			}
			s.longClass = other
		})
		if f.Answer != NotSeen {
			t.Errorf("%s, %s: %s: %q", c.id, other, f.Answer, f.Reasons)
		}
	}
	if judged != 8 {
		t.Errorf("%d bugs were judged", judged)
	}
}

// An exit may be recorded up to 100 ms after its effect. A loss that begins earlier is none of it.
func TestALossBeforeTheRecordOfItsExit(t *testing.T) {
	judged := 0
	for _, c := range specimens(t) {
		begins := map[string]int{"k8s-71834": 500, "k8s-111661": 100}[c.id] // ms from the exit to the loss
		if begins == 0 {
			continue
		}
		judged++
		for before, want := range map[int]Answer{50: Seen, 300: CannotTell} {
			if f := c.judge(t, func(s *fakeRun) { c.bug(s, -begins-before) }); f.Answer != want {
				t.Errorf("%s, lost %d ms before the record of the exit: %s: %q; want %s", c.id, before, f.Answer, f.Reasons, want)
			}
		}
	}
	if judged != 2 {
		t.Errorf("%d bugs were judged", judged)
	}
}

// Few lost attempts on open connections are no proof of a bug that loses many.
func TestFewLostAttemptsOnOpenConnections(t *testing.T) {
	judged := 0
	for _, c := range specimens(t) {
		fewest := map[string]int{"k8s-57841": 4, "k8s-117205": 2}[c.id]
		if fewest == 0 {
			continue
		}
		judged++
		for lost, want := range map[int]Answer{fewest - 1: NotSeen, fewest: Seen} {
			f := c.judge(t, func(s *fakeRun) {
				c.bug(s, 0)
				s.longFor = time.Duration(lost) * interval
			})
			if f.Answer != want {
				t.Errorf("%s, %d lost: %s: %q; want %s", c.id, lost, f.Answer, f.Reasons, want)
			}
		}
	}
	if judged != 2 {
		t.Errorf("%d bugs were judged", judged)
	}
}

// compared are the bugs whose signatures compare with new connections. What these would show is not known where they are lost too.
var compared = []string{"k8s-103857", "k8s-105192", "k8s-105657", "k8s-106030", "k8s-112604", "k8s-117205", "k8s-125467", "k8s-42473", "k8s-57841", "k8s-59368", "k8s-71514",
	"k8s-76664", "k8s-91236", "k8s-96251"}

func TestALostLaneOfComparisonTellsNothing(t *testing.T) {
	judged := 0
	for _, c := range specimens(t) {
		if !slices.Contains(compared, c.id) {
			continue
		}
		judged++
		for _, at := range []int{begin + 2000, c.firstLoss(t)} { // before the trigger, and with the bug
			f := c.judge(t, func(s *fakeRun) {
				c.bug(s, 0)
				answersUntil(at)(s)
			})
			if f.Answer != CannotTell {
				t.Errorf("%s, new connections lost from %d ms on: %s: %q", c.id, at, f.Answer, f.Reasons)
			}
		}
	}
	if judged != len(compared) {
		t.Errorf("%d of %d bugs were judged", judged, len(compared))
	}
}

// firstLoss is when the bug loses the first attempt in the simulated run, in ms; at the trigger if it loses none.
func (c specimen) firstLoss(t *testing.T) int {
	var from []float64
	for _, l := range c.record(t, func(s *fakeRun) { c.bug(s, 0) }).Report.Lanes {
		for _, o := range l.Outages {
			from = append(from, o.From)
		}
	}
	if len(from) == 0 {
		return 20_000
	}
	return int(slices.Min(from) * 1000)
}

// Where no program listens at the proxy's port, none is refused there: the load balancer's health checks ask the same port.
func TestAPortOfNoProgramTellsNothing(t *testing.T) {
	all := specimens(t)
	i := slices.IndexFunc(all, func(c specimen) bool { return c.id == "k8s-114815" })
	if i < 0 {
		t.Fatal("no specimen of k8s-114815")
	}
	c := all[i]
	for _, at := range []int{begin - 1000, whole / 2} { // before the node gets its address, and after that
		f := c.judge(t, func(s *fakeRun) {
			c.bug(s, 0)
			s.balance(ms(at), "web", webAddress, "node-2")
			s.balance(s.end-2*time.Second, "web", webAddress, "node-1", "node-2")
		})
		if f.Answer != CannotTell {
			t.Errorf("%s: %q", f.Answer, f.Reasons)
		}
	}
}

// A loss that is shorter than the times between attempts over one node cannot be missed for certain.
func TestFewAttemptsTellNothingOfAShortLoss(t *testing.T) {
	judged := 0
	for _, c := range specimens(t) {
		if e, _ := simulated(t, c.id); e.Rate == 0 {
			continue
		}
		judged++
		f := c.judge(t, func(s *fakeRun) { s.every = 50 * time.Millisecond })
		if f.Answer != CannotTell || !strings.Contains(f.Reasons[0], "could not have detected") {
			t.Errorf("%s: %s: %q", c.id, f.Answer, f.Reasons)
		}
	}
	if judged == 0 {
		t.Error("no bug has a rate")
	}
}

// A timeline that names addresses of pods shows nothing where the run's pods have others.
func TestTimelinesNameTheRunsPods(t *testing.T) {
	for _, id := range []string{"k8s-110208", "k8s-135266"} {
		e, s := simulated(t, id)
		s.pod(ms(600), "web-1", "node-1", record.PodExited)
		s.pod(ms(700), "web-3", "node-3", record.PodReady)
		if f := e.Judge(s.record(t)); f.Answer != CannotTell || !strings.Contains(strings.Join(f.Reasons, ""), "names the pod 10.244.1.2") {
			t.Errorf("%s: %s: %q", id, f.Answer, f.Reasons)
		}
	}
	for _, e := range All() {
		if text, err := e.Text(); err == nil && strings.Contains(text, `"10.244.`) && e.ID != "k8s-110208" && e.ID != "k8s-135266" {
			t.Errorf("%s names addresses of pods, which its signature does not check", e.ID)
		}
	}
}

// A flow that is lost when its pod begins to terminate has another bug than one that is lost when its pod ends. Which of two pods has the
// flow does not matter.
func TestTheEndOfTheFlowsOwnPodCounts(t *testing.T) {
	for _, first := range []bool{true, false} {
		for id, at := range map[string]int{"k8s-71514": 20_200, "k8s-76664": 25_000, "k8s-59368": 25_000} {
			for other, lostAt := range map[string]int{"its own": at, "the other bug's": 45_200 - at} {
				e, s := simulated(t, id)
				twoEnd(first)(s)
				losesFlow(lostAt)(s, 0)
				if f := e.Judge(s.record(t)); (f.Answer == Seen) != (other == "its own") {
					t.Errorf("%s, the flow's pod is the first: %t, loss is %s: %s: %q", id, first, other, f.Answer, f.Reasons)
				}
			}
		}
	}
}

// A real API server drops the field of k8s-110208, so that the trigger changes nothing.
func TestATriggerOfTheReplayControlPlane(t *testing.T) {
	e, s := simulated(t, "k8s-110208")
	s.controlPlane = "kube"
	s.pod(ms(500), "web-2", "node-2", record.PodReady)
	if f := e.Judge(s.record(t)); f.Answer != CannotTell || !strings.Contains(f.Reasons[0], "--controlplane replay") {
		t.Errorf("%s: %q", f.Answer, f.Reasons)
	}
}

// Without a sync that failed a run does not have the conditions of k8s-112604.
func TestNoSyncFailed(t *testing.T) {
	e, s := simulated(t, "k8s-112604")
	exits(begin + 25_000)(s)
	steadyFlow(s)
	if f := e.Judge(s.record(t)); f.Answer != CannotTell {
		t.Errorf("%s: %q", f.Answer, f.Reasons)
	}
}

// Each entry with a timeline or without old tests of its own is simulated.
func TestEachEntryIsSimulated(t *testing.T) {
	simulated := map[string]bool{"k8s-102314": true, "k8s-122740": true, "k8s-139628": true, "k8s-71071": true, "k8s-71515": true, "k8s-85643": true, "k8s-92019": true}
	for _, c := range specimens(t) {
		simulated[c.id] = true
	}
	for _, e := range All() {
		if !simulated[e.ID] {
			t.Errorf("no test simulates %s", e.ID)
		}
	}
}

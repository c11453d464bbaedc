package museum

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// newRun returns a run of 120 s of an entry's scenario, with the entry's parameters.
func newRun(e Entry, losses ...loss) *fakeRun {
	s := &fakeRun{scenario: e.Scenario, losses: losses, params: map[string]string{}, end: ms(120_000)}
	maps.Copy(s.params, e.Set)
	s.pod(ms(500), "web-1", "node-1", record.PodReady)
	s.balance(ms(600), "web", webAddress, "node-1", "node-2")
	return s
}

func (s *fakeRun) step(name, node string, begin, end int) *fakeRun {
	s.event(ms(begin), node, name, record.Step{State: record.StepBegin})
	s.event(ms(end), node, name, record.Step{State: record.StepEnd})
	return s
}

// withFlow adds a UDP flow; pod returns who answers it at a time.
func withFlow(s *fakeRun, pod func(at time.Duration) string) *fakeRun {
	s.flow = pod
	return s
}

// testCase is a simulated run with the expected answer and a part of its reasons.
type testCase struct {
	run    *fakeRun
	want   Answer
	reason string
}

func checkAnswers(t *testing.T, e Entry, cases map[string]testCase) {
	t.Helper()
	for name, c := range cases {
		f := e.Judge(c.run.record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != c.want || !strings.Contains(text, c.reason) {
			t.Errorf("%s: %s: %s; want %s with %q", name, f.Answer, text, c.want, c.reason)
		}
	}
}

func lost(node string, from, to int, class record.Class) loss {
	return loss{node, ms(from), ms(to), class}
}

func TestK8s92019(t *testing.T) {
	run := func(losses ...loss) *fakeRun {
		s := newRun(k8s92019(), losses...).step("restart the proxy of node-1", "node-1", 20_000, 30_000)
		s.pod(ms(20_100), "web-1", "node-1", record.PodUnready)
		s.pod(ms(26_000), "web-1", "node-1", record.PodReady)
		return s
	}
	short := lost("node-2", 20_200, 26_500, record.Rejected)
	checkAnswers(t, k8s92019(), map[string]testCase{
		"the bug":                     {run(lost("node-1", 20_200, 120_000, record.Rejected), short), Seen, "over node-1 from 20.2 s on"},
		"served again":                {run(lost("node-1", 20_200, 30_500, record.Rejected), short), NotSeen, "the longest loss"},
		"nothing lost":                {run(), NotSeen, ""},
		"served again after a minute": {run(lost("node-1", 20_200, 90_000, record.Rejected), short), NotSeen, ""},
		"timeouts only":               {run(lost("node-1", 20_200, 120_000, record.ConnectTimeout), short), NotSeen, ""},
		"lost before":                 {run(lost("node-1", 15_000, 120_000, record.Rejected)), CannotTell, "already lost"},
		"lost ten seconds later":      {run(lost("node-1", 30_200, 120_000, record.Rejected), short), NotSeen, ""},
		"lost much later":             {run(lost("node-1", 50_000, 120_000, record.Rejected)), NotSeen, ""},
		"lost on all nodes":           {run(lost("node-1", 20_200, 120_000, record.Rejected), lost("node-2", 20_200, 120_000, record.Rejected)), CannotTell, "node-2, whose proxy was not restarted"},
		"the pod stayed ready":        {withoutState(run(), record.PodUnready), CannotTell, "no pod became unready"},
		"the pod stayed unready":      {withoutState(run(), record.PodReady), CannotTell, "no pod became unready, and"},
		"no proxy restarted":          {without(run(), record.KindStep), CannotTell, "no proxy was restarted"},
		"a short watch":               {ended(run(lost("node-1", 20_200, 80_000, record.Rejected)), 80_000), CannotTell, "ran for 50s"},
		"the pod deleted":             {with(run(), "change", "on"), CannotTell, "needs change=ready"},
		"no proof":                    {unproved(run()), CannotTell, "invalid"},
	})
}

func TestK8s139628(t *testing.T) {
	// The flow is dropped from 25 s on, refused from one time on, and answered again from another (in ms).
	run := func(refused, again int, tcp ...loss) *fakeRun {
		if tcp == nil {
			tcp = []loss{lost("node-1", 25_000, 61_000, record.Rejected), lost("node-2", 25_000, 61_000, record.Rejected)}
		}
		s := newRun(k8s139628(), tcp...).step("scale to 0", "", 20_000, 26_000).step("scale to 2", "", 60_000, 62_000)
		s.flowClass = func(at time.Duration) record.Class {
			if at >= ms(refused) {
				return record.Rejected
			}
			return record.ReplyTimeout
		}
		return withFlow(s, func(at time.Duration) string {
			if at > ms(25_000) && at < ms(again) {
				return ""
			}
			return "web-1"
		})
	}
	later := withFlow(run(999_000, 72_000), func(at time.Duration) string {
		if at > ms(35_000) && at < ms(72_000) {
			return ""
		}
		return "web-1"
	})
	checkAnswers(t, k8s139628(), map[string]testCase{
		"the bug":              {run(999_000, 62_000), Seen, "was dropped without a rejection"},
		"the bug, to the end":  {run(999_000, 120_000), Seen, ""},
		"refused soon":         {run(27_000, 62_000), NotSeen, "dropped datagrams were refused"},
		"a few are refused":    {run(59_500, 62_000), Seen, "rejected 125"},
		"refused at once":      {run(25_000, 62_000), NotSeen, ""},
		"ten seconds later":    {later, CannotTell, "was answered while"},
		"answered meanwhile":   {run(999_000, 40_000), CannotTell, "was answered while"},
		"TCP is not refused":   {run(999_000, 62_000, lost("node-1", 25_000, 61_000, record.ConnectTimeout)), CannotTell, "does not refuse"},
		"TCP is not lost":      {run(999_000, 62_000, lost("node-1", 25_000, 25_100, record.Rejected)), CannotTell, "does not refuse"},
		"not scaled":           {without(run(999_000, 62_000), record.KindStep), CannotTell, "not scaled"},
		"never answered":       {withFlow(run(999_000, 62_000), nil), CannotTell, "no UDP flow was answered"},
		"another scenario":     {as(run(999_000, 62_000), "flap"), CannotTell, "needs scale"},
		"without the UDP lane": {with(run(999_000, 62_000), "lanes", "tcp-new"), CannotTell, "needs lanes="},
		"scaled up early":      {scaledUpEarly(run(999_000, 62_000)), CannotTell, "too short"},
	})
}

// scaledUpEarly moves the step that scales up, so that the Service has no pods for a short time only.
func scaledUpEarly(s *fakeRun) *fakeRun {
	for i, e := range s.events {
		if e.Object == "scale to 2" {
			s.events[i].At -= 25 * time.Second
		}
	}
	return s
}

func TestK8s122740(t *testing.T) {
	run := func(pod func(at time.Duration) string) *fakeRun {
		s := withFlow(newRun(k8s122740()), pod)
		return s.step("restart the proxy of node-1", "node-1", 20_000, 23_000)
	}
	moves := func(at int) func(time.Duration) string {
		return func(now time.Duration) string {
			if now < ms(at) {
				return "web-1"
			}
			return "web-2"
		}
	}
	samePod := func(time.Duration) string { return "web-1" }
	terminating := run(moves(24_000))
	terminating.pod(ms(22_000), "web-1", "node-1", record.PodTerminating)
	silent := run(func(at time.Duration) string {
		if at < ms(15_000) {
			return "web-1"
		}
		return ""
	})
	checkAnswers(t, k8s122740(), map[string]testCase{
		"the bug":                     {run(moves(22_500)), Seen, "from web-1 to web-2 at 22.5 s"},
		"ten seconds later":           {run(moves(32_500)), NotSeen, ""},
		"same pod":                    {run(samePod), NotSeen, "kept its pod at all restarts of a proxy"},
		"moved before":                {run(moves(15_000)), NotSeen, ""},
		"moved long after":            {run(moves(60_000)), NotSeen, ""},
		"its pod terminates":          {terminating, NotSeen, ""},
		"no answer after the restart": {silent, CannotTell, "after the restarts of a proxy"},
		"never answered":              {run(nil), CannotTell, "before the restarts of a proxy"},
		"no proxy restarted":          {without(run(samePod), record.KindStep), CannotTell, "no restarts of a proxy"},
		"few pods":                    {with(run(samePod), "replicas", "2"), CannotTell, "needs replicas=30"},
	})
}

func TestModeSwitch(t *testing.T) {
	run := func(losses ...loss) *fakeRun {
		s := newRun(modeSwitch(), losses...).step("scale to 0", "", 20_000, 24_000)
		s.step("put b in the place of a on node-1", "node-1", 24_000, 28_000).step("put b in the place of a on node-2", "node-2", 33_000, 37_000)
		return s.step("scale to 3", "", 42_000, 44_000)
	}
	duringScale := func(node string) loss { return lost(node, 22_000, 43_000, record.Rejected) }
	unchanged := func() *fakeRun {
		s := run(lost("node-1", 22_000, 120_000, record.Rejected))
		s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return strings.HasPrefix(e.Object, "put ") })
		return s
	}
	checkAnswers(t, modeSwitch(), map[string]testCase{
		"the bug":                     {run(lost("node-1", 22_000, 120_000, record.Rejected), duringScale("node-2")), Seen, "over node-1 from 22.0 s on"},
		"rejected without pods only":  {run(duringScale("node-1"), duringScale("node-2")), NotSeen, "the longest loss"},
		"nothing lost":                {run(), NotSeen, ""},
		"served again after a minute": {run(lost("node-1", 22_000, 105_000, record.Rejected)), NotSeen, ""},
		"timeouts only":               {run(lost("node-1", 22_000, 120_000, record.ConnectTimeout)), NotSeen, ""},
		"lost before":                 {run(lost("node-1", 15_000, 120_000, record.Rejected)), CannotTell, "already lost"},
		"lost ten seconds later":      {run(lost("node-1", 32_000, 120_000, record.Rejected)), NotSeen, ""},
		"lost much later":             {run(lost("node-1", 70_000, 120_000, record.Rejected)), NotSeen, ""},
		"no proxy was changed":        {unchanged(), CannotTell, "no proxy was changed"},
		"changed with pods":           {unchanged().step("put b in the place of a on node-1", "node-1", 12_000, 16_000), CannotTell, "there were pods"},
		"never scaled":                {without(run(), record.KindStep), CannotTell, "no proxy was changed"},
		"another parameter":           {with(run(), "empty", "off"), CannotTell, "needs empty=on"},
		"a short watch":               {ended(run(lost("node-1", 22_000, 90_000, record.Rejected)), 90_000), CannotTell, "ran for 46s"},
	})
}

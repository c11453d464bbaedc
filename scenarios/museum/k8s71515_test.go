package museum

import (
	"maps"
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
)

// flapped is a run in which two pods become unready and ready again. Open connections are closed at 40 s.
func flapped(losses ...loss) *fakeRun {
	s := &fakeRun{scenario: "flap", losses: losses, params: map[string]string{}, end: ms(260_000), long: ms(40_000)}
	maps.Copy(s.params, k8s71515().Set)
	s.pod(ms(500), "web-1", "node-1", record.PodReady)
	s.pod(ms(500), "web-2", "node-2", record.PodReady)
	s.balance(ms(600), "web", webAddress, "node-1", "node-2")
	for i, pod := range []string{"web-1", "web-2"} {
		s.pod(ms(15_000+10_000*i), pod, "node-1", record.PodUnready)
		s.pod(ms(20_000+10_000*i), pod, "node-1", record.PodReady)
	}
	s.event(ms(40_000), "", "watch", record.Step{State: record.StepBegin})
	return s
}

// repeated returns losses on a node, each of the same length; length and period are in ms.
func repeated(node string, times, length, period int, class record.Class) (losses []loss) {
	for i := range times {
		from := 60_000 + i*period
		losses = append(losses, loss{node, ms(from), ms(from + length), class})
	}
	return losses
}

// The proxy's minutes begin when it starts, which the record does not tell. So the signature takes any phase, and only the period counts.
func TestK8s71515(t *testing.T) {
	for name, c := range map[string]struct {
		run    *fakeRun
		want   Answer
		reason string
	}{
		"the bug":                         {flapped(repeated("node-1", 3, 12_000, 60_000, record.Rejected)...), Seen, "node-1 refused connections 3 times"},
		"the bug, short windows":          {flapped(repeated("node-2", 4, 400, 60_000, record.Rejected)...), Seen, "node-2 refused connections 4 times"},
		"nothing lost":                    {flapped(), NotSeen, "three times"},
		"twice only":                      {flapped(repeated("node-1", 2, 12_000, 60_000, record.Rejected)...), NotSeen, ""},
		"each minute, ten seconds later":  {flapped(later(repeated("node-1", 3, 12_000, 60_000, record.Rejected), 10_000)...), Seen, "node-1 refused connections 3 times"},
		"one of three, ten seconds later": {flapped(shifted(repeated("node-1", 3, 12_000, 60_000, record.Rejected), 1)...), NotSeen, ""},
		"each 70 s":                       {flapped(repeated("node-1", 3, 12_000, 70_000, record.Rejected)...), NotSeen, ""},
		"each 50 s":                       {flapped(repeated("node-1", 4, 12_000, 50_000, record.Rejected)...), NotSeen, ""},
		"longer than a sync":              {flapped(repeated("node-1", 3, 40_000, 60_000, record.Rejected)...), NotSeen, ""},
		"timeouts only":                   {flapped(repeated("node-1", 3, 12_000, 60_000, record.ConnectTimeout)...), NotSeen, ""},
		"no connection was open":          {shut(flapped()), CannotTell, "no connection was open"},
		"open to one pod only":            {lopsided(flapped()), CannotTell, "no connection was open to one of the pods"},
		"no pod became ready":             {withoutState(flapped(), record.PodReady), CannotTell, "0 pods became unready and ready again"},
		"no pod became unready":           {withoutState(flapped(), record.PodUnready), CannotTell, "0 pods became unready and ready again"},
		"a watch of two minutes":          {ended(flapped(repeated("node-1", 2, 12_000, 60_000, record.Rejected)...), 160_000), CannotTell, "watched for 2m0"},
		"another traffic policy":          {with(flapped(), "trafficPolicy", "Local"), CannotTell, "needs trafficPolicy=Cluster"},
		"a timeline":                      {as(flapped(repeated("node-1", 3, 12_000, 60_000, record.Rejected)...), "timeline"), Seen, "node-1"},
		"a timeline without loss":         {as(flapped(), "timeline"), NotSeen, ""},
		"a rollout":                       {as(flapped(), "rollout"), CannotTell, "needs flap"},
		"no proof":                        {unproved(flapped()), CannotTell, "invalid"},
		"refused in the flap only":        {flapped(loss{"node-1", ms(20_000), ms(25_000), record.Rejected}), NotSeen, ""},
	} {
		f := k8s71515().Judge(c.run.record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != c.want || !strings.Contains(text, c.reason) {
			t.Errorf("%s: %s: %s; want %s with %q", name, f.Answer, text, c.want, c.reason)
		}
	}
}

// later returns the losses some ms later.
func later(losses []loss, shift int) []loss {
	for i := range losses {
		losses[i].from, losses[i].to = losses[i].from+ms(shift), losses[i].to+ms(shift)
	}
	return losses
}

// shifted returns the losses with one of them ten seconds later.
func shifted(losses []loss, i int) []loss {
	later(losses[i:i+1], 10_000)
	return losses
}

func lopsided(s *fakeRun) *fakeRun { s.onePod = true; return s }

func shut(s *fakeRun) *fakeRun { s.long = 0; return s }

func ended(s *fakeRun, at int) *fakeRun { s.end = ms(at); return s }

// withoutState removes the changes to a pod state during the scenario.
func withoutState(s *fakeRun, state record.PodState) *fakeRun {
	for i, e := range s.events {
		if b, is := e.Body.(record.Pod); is && e.At > scenarioAt && b.State == state {
			b.State = record.PodStarted
			s.events[i].Body = b
		}
	}
	return s
}

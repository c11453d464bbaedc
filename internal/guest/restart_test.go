//go:build linux

package guest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// renewed is a proxy with another process id after each start; it tells which pods there are when it starts.
type renewed struct {
	idle
	pid   int
	start func()
}

func (r *renewed) Pid(string) (int, error)            { return r.pid, nil }
func (r *renewed) Stop(context.Context, string) error { return nil }
func (r *renewed) Start(context.Context, string) error {
	r.pid++
	r.start()
	return nil
}

// play runs a scenario on the stage to its end.
func play(t *testing.T, s *stage, name string) {
	t.Helper()
	if err := s.play(t, name); err != nil {
		t.Fatal(err)
	}
}

// webPods are the pods of the Deployment, terminating ones included.
func webPods(t *testing.T, s *stage) []corev1.Pod {
	t.Helper()
	list, err := s.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// The proxy comes back to other endpoints than it left, and in the end there are as many pods as before.
func TestARestartCanComeBackToOtherEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "restart", map[string]string{"replicas": "2", "change": "on", "which": "one", "antiAffinity": "off"})
		pods := func() map[string]bool {
			names := map[string]bool{}
			for _, pod := range webPods(t, s) {
				names[pod.Name] = pod.DeletionTimestamp == nil
			}
			return names
		}
		var before, during map[string]bool
		p := &renewed{start: func() { during = pods() }}
		s.world.Site.OfferProxies(p)
		s.kubelet = func(_ *corev1.Pod, _, should corev1.ConditionStatus) corev1.ConditionStatus {
			if before == nil && len(pods()) == 2 {
				before = pods()
			}
			return should
		}
		play(t, s, "restart")
		stayed := 0
		for name := range before {
			if during[name] {
				stayed++
			}
		}
		if len(before) != 2 || stayed != 1 || len(pods()) != 2 {
			t.Errorf("before %v, when the proxy came back %v, in the end %v: one of two pods had to go meanwhile", before, during, pods())
		}
	})
}

// The pod is unready when the proxy ends, and ready again when it starts.
func TestARestartCanComeBackToAPodThatIsReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "restart", map[string]string{"replicas": "1", "change": "ready", "which": "one"})
		var now corev1.ConditionStatus
		var seen []corev1.ConditionStatus
		p := &renewed{start: func() { seen = append(seen, now) }}
		s.world.Site.OfferProxies(ending{p, func() { seen = append(seen, now) }})
		s.kubelet = func(pod *corev1.Pod, _, should corev1.ConditionStatus) corev1.ConditionStatus {
			if pod.Labels["app"] == "web" {
				now = should
			}
			return should
		}
		play(t, s, "restart")
		if !slices.Equal(seen, []corev1.ConditionStatus{"False", "True"}) {
			t.Errorf("when the proxy ended and started the pod's readiness was %v", seen)
		}
	})
}

// ending tells when the proxy is about to end.
type ending struct {
	*renewed
	ends func()
}

func (ending) Subject(string) string { return "old" }

func (ending) Change(string, string) error { return nil }

func (e ending) Stop(context.Context, string) error {
	e.ends()
	return nil
}

// A Service that is scaled to zero has no pod in between, and as many as before in the end.
func TestScalingToZeroAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "scale", map[string]string{"antiAffinity": "off"})
		least, most, last := 99, 0, 0
		s.kubelet = func(_ *corev1.Pod, _, should corev1.ConditionStatus) corev1.ConditionStatus {
			if last = len(webPods(t, s)); most > 0 || last > 0 {
				least, most = min(least, last), max(most, last)
			}
			return should
		}
		play(t, s, "scale")
		if steps := s.steps("scale to "); least != 0 || most != 2 || last != 2 || !slices.Equal(steps, []string{"begin", "end", "begin", "end"}) {
			t.Errorf("there were %d to %d pods, and %d in the end; steps %v", least, most, last, steps)
		}
	})
}

// The proxies change while the Service has no pod, and in the end it has as many as before.
func TestAnUpgradeCanMeetAServiceWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "upgrade", map[string]string{"to": "new", "empty": "on", "antiAffinity": "off"})
		pods := func() int { return len(webPods(t, s)) }
		var met []int
		meet := func() { met = append(met, pods()) }
		s.world.Site.OfferProxies(ending{&renewed{start: meet}, meet})
		play(t, s, "upgrade")
		if len(met) == 0 || slices.Max(met) != 0 || pods() != 3 {
			t.Errorf("the proxies ended and started with %v pods, and in the end there are %d; none and 3 were wanted", met, pods())
		}
	})
}

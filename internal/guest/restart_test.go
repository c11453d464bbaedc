package guest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/scenarios"
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

// The proxy comes back to other endpoints than it left, and in the end there are as many pods as before.
func TestARestartCanComeBackToOtherEndpoints(t *testing.T) {
	s := newStage(t, "restart", map[string]string{"replicas": "2", "change": "on", "which": "one", "antiAffinity": "off"})
	pods := func() map[string]bool {
		list, err := s.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, pod := range list.Items {
			names[pod.Name] = pod.DeletionTimestamp == nil
		}
		return names
	}
	var before, during map[string]bool
	p := &renewed{start: func() { during = pods() }}
	s.world.Proxies = p
	s.kubelet = func(_ *corev1.Pod, _, should corev1.ConditionStatus) corev1.ConditionStatus {
		if before == nil && len(pods()) == 2 {
			before = pods()
		}
		return should
	}
	scenario, err := scenarios.Find("restart")
	if err != nil {
		t.Fatal(err)
	}
	if err := scenarios.Run(t.Context(), scenario, &s.world); err != nil {
		t.Fatal(err)
	}
	stayed := 0
	for name := range before {
		if during[name] {
			stayed++
		}
	}
	if len(before) != 2 || stayed != 1 || len(pods()) != 2 {
		t.Errorf("before %v, when the proxy came back %v, in the end %v: one of two pods had to go meanwhile", before, during, pods())
	}
}

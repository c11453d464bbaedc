//go:build linux

package guest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/scenarios"
)

// flap runs the scenario with one flap of two pods, and returns how the steps of the flaps ended.
func (s *stage) flap(t *testing.T) (steps []string, err error) {
	t.Helper()
	err = s.play(t, "flap")
	return s.steps("flap "), err
}

func TestFlapMakesEachPodUnreadyAndReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "flap", nil)
		changes := map[string][]corev1.ConditionStatus{}
		s.kubelet = func(pod *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus {
			if before != should && len(pod.Spec.ReadinessGates) > 0 {
				changes[pod.Name] = append(changes[pod.Name], should)
			}
			return should
		}
		steps, err := s.flap(t)
		if err != nil || !slices.Equal(steps, []string{"begin", "end", "begin", "end"}) {
			t.Fatalf("steps %v, %v", steps, err)
		}
		for pod, c := range changes {
			if n := len(c); n < 3 || !slices.Equal(c[n-3:], []corev1.ConditionStatus{"True", "False", "True"}) {
				t.Errorf("pod %s was %v", pod, c)
			}
		}
		if len(changes) != 2 {
			t.Errorf("%d pods were played, want 2", len(changes))
		}
		i := slices.IndexFunc(s.lanes, func(l scenarios.LaneSpec) bool { return l.Protocol == "tcp-long" })
		if i < 0 || s.lanes[i].Connections != 24 || !s.lanes[i].Partial || s.lanes[i].Rate != 12 {
			t.Errorf("lanes %+v, want one with 24 open connections, each asked every 2 s", s.lanes)
		}
	})
}

// A pod that stays ready, or does not come back, or was restarted, has not flapped: the run must not look like one.
func TestAFlapThatDidNotHappenFails(t *testing.T) {
	flapped := false
	for name, kubelet := range map[string]func(pod *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus{
		"ready=false": func(_ *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus {
			if before == corev1.ConditionTrue {
				return before
			}
			return should
		},
		"ready=true": func(pod *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus {
			flapped = flapped || before == corev1.ConditionTrue && should == corev1.ConditionFalse
			if flapped {
				return corev1.ConditionFalse
			}
			return should
		},
		"restarted": func(pod *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus {
			if before == corev1.ConditionTrue && should == corev1.ConditionFalse {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "backend", RestartCount: 1}}
			}
			return should
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, "flap", nil)
				s.kubelet = kubelet
				steps, err := s.flap(t)
				if err == nil || !strings.Contains(err.Error(), name) || !slices.Equal(steps, []string{"begin", "failed"}) {
					t.Errorf("steps %v, %v", steps, err)
				}
			})
		})
	}
}

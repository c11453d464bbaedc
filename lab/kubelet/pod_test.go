package kubelet

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func port(n int32) intstr.IntOrString { return intstr.FromInt32(n) }

func isReady(pod *corev1.Pod) bool { return conditionTrue(pod.Status.Conditions, corev1.PodReady) }

func withPreStop(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
	}
}

func TestPodBecomesReady(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.create(webPod("web"))
		b.at(3)
		b.wantEvents("0 web created", "0 web started", "1 web ready")
		pod := b.pod("web")
		s := pod.Status
		if !isReady(pod) || s.Phase != corev1.PodRunning || s.PodIP != "10.244.1.2" || s.HostIP != "10.0.0.11" {
			t.Errorf("status: phase %s, pod address %s, host address %s, ready %v", s.Phase, s.PodIP, s.HostIP, isReady(pod))
		}
		b.host.setFailing("/readyz")
		b.at(5)
		if pod := b.pod("web"); isReady(pod) {
			t.Error("the pod is ready while its readiness probe fails")
		}
		b.host.setFailing()
		b.at(7)
		var ready corev1.PodCondition
		for _, c := range b.pod("web").Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = c
			}
		}
		if ready.Status != corev1.ConditionTrue || ready.Reason != "" || ready.Message != "" {
			t.Errorf("condition after recovery: %+v", ready)
		}
	})
}

func TestPodOfAnotherNodeIsIgnored(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.create(webPod("web", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }))
		b.at(5)
		b.wantEvents()
	})
}

// A deleted pod serves and is reported ready until its process ends; then it is removed from the API.
func TestTerminatingPodServesUntilItsProcessEnds(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.onTerm["web"] = 20500 * time.Millisecond // between two checks of readiness
		b.create(webPod("web", withPreStop(5)))
		b.at(10)
		b.remove("web", 60)
		b.at(34)
		if !isReady(b.pod("web")) {
			t.Error("the pod is not ready although its process serves")
		}
		b.at(37)
		if b.podExists("web") {
			t.Error("the pod is still in the API")
		}
		b.wantEvents("0 web created", "0 web started", "1 web ready", "10 web terminating", "15 web sigterm",
			"35 web exited", "35 web unready", "35 web removed")
		if b.host.sandboxes != 0 {
			t.Errorf("%d sandboxes are left", b.host.sandboxes)
		}
		if !slices.Contains(b.host.asked, 35) || slices.Contains(b.host.asked, 36) {
			t.Errorf("readiness was asked at %v, want until the end at 35.5", b.host.asked)
		}
	})
}

func TestReadinessProbeContinuesDuringTermination(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.onTerm["web"] = 20 * time.Second
		b.create(webPod("web"))
		b.at(10)
		b.remove("web", 60)
		b.host.setFailing("/readyz")
		b.at(15)
		if pod := b.pod("web"); isReady(pod) || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("ready %v, phase %s; want a running pod that is not ready", isReady(pod), pod.Status.Phase)
		}
	})
}

func TestGrace(t *testing.T) {
	tests := []struct {
		name    string
		pod     *corev1.Pod
		grace   int64
		shorten int64 // 2 s after the deletion; 0 for no
		signals []string
	}{
		{"SIGKILL after the grace", webPod("web"), 30, 0, []string{"10 terminated", "40 killed"}},
		{"preStop is part of the grace", webPod("web", withPreStop(5)), 30, 0, []string{"15 terminated", "40 killed"}},
		{"two seconds after a preStop that used it up", webPod("web", withPreStop(99)), 30, 0,
			[]string{"40 terminated", "42 killed"}},
		{"forced", webPod("web"), 0, 0, []string{"10 terminated", "12 killed"}},
		{"shortened", webPod("web"), 300, 5, []string{"10 terminated", "17 killed"}},
		{"lengthening does nothing", webPod("web"), 10, 300, []string{"10 terminated", "20 killed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runTest(t, nil, func(b *testKubelet) {
				b.host.onTerm["web"] = -1
				b.create(tt.pod.DeepCopy())
				b.at(10)
				b.remove("web", tt.grace)
				if tt.shorten > 0 {
					b.at(12)
					b.remove("web", tt.shorten)
				}
				b.at(120)
				if diff := cmp.Diff(tt.signals, b.host.last.signals); diff != "" {
					t.Errorf("signals (-want +got):\n%s", diff)
				}
				if b.podExists("web") {
					t.Error("the pod is still in the API")
				}
			})
		})
	}
}

func TestContainerIsRestartedWithBackoff(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.exitAfter["web"] = 5 * time.Second
		b.create(webPod("web"))
		b.at(60)
		want := []string{"0 web", "5 web", "20 web", "45 web"} // at once, then 10 s and 20 s after the end
		if !slices.Equal(b.host.starts, want) {
			t.Errorf("starts %v, want %v", b.host.starts, want)
		}
		b.at(52)
		c := b.pod("web").Status.ContainerStatuses[0]
		if c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" || c.RestartCount != 3 || c.Ready {
			t.Errorf("container status: %+v", c)
		}
		if c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 1 {
			t.Errorf("last end: %+v", c.LastTerminationState.Terminated)
		}
		b.remove("web", 30) // nothing runs: it ends at once
		b.at(61)
		if b.podExists("web") {
			t.Error("the pod is still in the API")
		}
	})
}

func TestRestartPolicyNever(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.exitAfter["web"] = 5500 * time.Millisecond // between two checks of readiness
		b.create(webPod("web", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		b.at(60)
		if pod := b.pod("web"); pod.Status.Phase != corev1.PodFailed || isReady(pod) {
			t.Errorf("phase %s, ready %v, want Failed and not ready", pod.Status.Phase, isReady(pod))
		}
		b.wantEvents("0 web created", "0 web started", "1 web ready", "5 web exited", "5 web unready", "5 web removed")
	})
}

func TestLivenessRestarts(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.onTerm["web"] = 3 * time.Second
		b.create(webPod("web", func(p *corev1.Pod) {
			live := p.Spec.Containers[0].ReadinessProbe.DeepCopy()
			live.HTTPGet.Path, live.FailureThreshold = "/healthz", 3
			p.Spec.Containers[0].LivenessProbe = live
		}))
		b.at(10)
		b.host.setFailing("/healthz")
		b.at(15) // the checks at 11, 12 and 13 fail
		b.host.setFailing()
		b.at(30)
		if want := []string{"0 web", "16 web"}; !slices.Equal(b.host.starts, want) {
			t.Errorf("starts %v, want %v", b.host.starts, want)
		}
		if !isReady(b.pod("web")) {
			t.Error("the pod is not ready again")
		}
	})
}

func TestOtherProbesWaitForTheStartupProbe(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.setFailing("/started")
		b.create(webPod("web", func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.StartupProbe = c.ReadinessProbe.DeepCopy()
			c.StartupProbe.HTTPGet.Path, c.StartupProbe.FailureThreshold = "/started", 30
		}))
		b.at(10)
		if isReady(b.pod("web")) {
			t.Error("ready before the startup probe has passed")
		}
		b.host.setFailing()
		b.at(12)
		if !isReady(b.pod("web")) {
			t.Error("not ready after the startup probe has passed")
		}
	})
}

func TestUnsupportedPodsAreRefused(t *testing.T) {
	container := func(f func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Spec.Containers[0]) }
	}
	tests := []struct {
		name   string
		adjust func(*corev1.Pod)
		reason string
		says   string
	}{
		{"image", container(func(c *corev1.Container) { c.Image = "nginx:1" }), "ErrImagePull", "nginx:1"},
		{"subcommand", container(func(c *corev1.Container) { c.Args = []string{"porter"} }), "RunContainerError", "porter"},
		{"command", container(func(c *corev1.Container) { c.Command = []string{"sh", "-c"} }), "RunContainerError", "sh"},
		{"init containers", func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "first"}} },
			"CreateContainerConfigError", "first"},
		{"gRPC probe", container(func(c *corev1.Container) {
			c.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}
		}), "CreateContainerConfigError", "gRPC"},
		{"secret", container(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{}}}
		}), "CreateContainerConfigError", "PASSWORD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runTest(t, nil, func(b *testKubelet) {
				b.create(webPod("web", tt.adjust))
				b.at(30)
				pod := b.pod("web")
				waiting := pod.Status.ContainerStatuses[0].State.Waiting
				if pod.Status.Phase != corev1.PodPending || waiting == nil || waiting.Reason != tt.reason ||
					!strings.Contains(waiting.Message, tt.says) {
					t.Errorf("phase %s, waiting %+v", pod.Status.Phase, waiting)
				}
				b.remove("web", 30)
				if b.at(31); b.podExists("web") {
					t.Error("the pod cannot be deleted")
				}
			})
		})
	}
}

func TestCommandAndEnvironment(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.create(webPod("web", func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			field := func(path string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
			}
			c.Command, c.Args = []string{"/agnhost"}, []string{"netexec", "--http-port=$(PORT)", "$$(PORT)", "$(NONE)"}
			c.Env = []corev1.EnvVar{{Name: "PORT", Value: "80"}, {Name: "URL", Value: "http://$(IP):$(PORT)"},
				{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "URL", Value: "http://$(IP):$(PORT)"},
				{Name: "APP", ValueFrom: field("metadata.labels['app']")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
				{Name: "HITLESS_POD", Value: "liar"}}
		}))
		b.at(1)
		want := []string{"/hitless", "backend", "netexec", "--http-port=80", "$(PORT)", "$(NONE)"}
		if diff := cmp.Diff(want, b.host.last.argv); diff != "" {
			t.Errorf("arguments (-want +got):\n%s", diff)
		}
		env := map[string]string{} // the last one counts, as in execve's callers
		for _, entry := range b.host.last.env {
			name, value, _ := strings.Cut(entry, "=")
			env[name] = value
		}
		wantEnv := map[string]string{"HOSTNAME": "web", "PORT": "80", "IP": "10.244.1.2", "URL": "http://10.244.1.2:80",
			"APP": "web", "NODE": "node-1", "HITLESS_POD": "web", "HITLESS_NODE": "node-1", "HITLESS_GENERATION": "g1"}
		if diff := cmp.Diff(wantEnv, env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
	})
}

func TestReadinessGate(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/lb"}}
		}))
		b.at(5)
		pod := b.pod("web").DeepCopy()
		if isReady(pod) || !conditionTrue(pod.Status.Conditions, corev1.ContainersReady) {
			t.Errorf("conditions with a closed gate: %+v", pod.Status.Conditions)
		}
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: "example.org/lb", Status: corev1.ConditionTrue})
		if _, err := b.client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.at(6)
		if !isReady(b.pod("web")) {
			t.Error("not ready with an open gate")
		}
	})
}

// A node that loses power writes nothing: its pods stay in the API unchanged.
func TestPowerOff(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.host.onTerm["web"] = -1
		b.create(webPod("web"))
		b.at(5)
		before := b.pod("web")
		b.off()
		<-b.ended
		if diff := cmp.Diff(before, b.pod("web")); diff != "" {
			t.Errorf("the API heard of it (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"5 killed"}, b.host.last.signals); diff != "" {
			t.Errorf("signals (-want +got):\n%s", diff)
		}
		if b.host.sandboxes != 0 {
			t.Errorf("%d sandboxes are left", b.host.sandboxes)
		}
		renewed := b.lease()
		time.Sleep(time.Minute)
		if now := b.lease(); !now.Equal(renewed) {
			t.Errorf("the lease was renewed at %s after the power was gone", now)
		}
	})
}

func (b *testKubelet) lease() time.Time {
	b.Helper()
	lease, err := b.client.CoordinationV1().Leases("kube-node-lease").Get(b.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return lease.Spec.RenewTime.Time
}

func TestLeaseIsRenewed(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		b.at(35)
		if late := time.Since(b.lease()); late > DefaultLease {
			t.Errorf("the lease was last renewed %s ago, want at most %s", late, DefaultLease)
		}
		node, err := b.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil || len(node.Status.Conditions) != 1 || node.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Errorf("node conditions %+v, %v", node.Status.Conditions, err)
		}
	})
}

// A silent kubelet uses the addresses of the timeline and writes nothing to the API.
func TestSilent(t *testing.T) {
	runTest(t, func(c *Config) { c.Silent = true }, func(b *testKubelet) {
		timeline := webPod("web", func(p *corev1.Pod) { p.Status.PodIP = "10.244.1.77" })
		b.create(timeline)
		b.at(5)
		b.wantEvents("0 web created", "0 web started", "1 web ready")
		if got := b.host.last.sandbox.addr.String(); got != "10.244.1.77" {
			t.Errorf("address %s, want the timeline's", got)
		}
		if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.wantEvents("0 web created", "0 web started", "1 web ready", "5 web terminating", "5 web sigterm",
			"5 web exited", "5 web unready", "5 web removed")
		for _, action := range b.client.Actions() {
			if verb := action.GetVerb(); verb == "patch" || verb == "update" || action.GetResource().Resource == "leases" {
				t.Errorf("the silent kubelet wrote: %s %s", verb, action.GetResource().Resource)
			}
		}
	})
}

// A pod waits for the address that a timeline gives it until the previous owner has ended.
func TestPodWaitsForTheAddressOfATerminatingPod(t *testing.T) {
	runTest(t, func(c *Config) { c.Silent = true }, func(b *testKubelet) {
		b.host.onTerm["old"] = 10 * time.Second
		same := func(p *corev1.Pod) { p.Status.PodIP = "10.244.1.77" }
		b.create(webPod("old", same))
		b.at(5)
		b.remove("old", 60)
		b.create(webPod("new", same))
		b.at(30)
		if want := []string{"0 old", "15 new"}; !slices.Equal(b.host.starts, want) {
			t.Errorf("starts %v, want %v", b.host.starts, want)
		}
	})
}

// Failed writes are retried, because scenarios stop the API server.
func TestStatusIsWrittenAfterAnAPIOutage(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		down := b.failPatches()
		b.create(webPod("web"))
		b.at(20)
		if isReady(b.pod("web")) {
			t.Fatal("the fake did not fail")
		}
		down.Store(false)
		b.at(22)
		if !isReady(b.pod("web")) {
			t.Error("the status was not written after the API came back")
		}
	})
}

package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// The objects of a fleet obey the Pod Security Standard restricted, except with the network of the node.
func TestFleetIsRestricted(t *testing.T) {
	for _, f := range []Fleet{{Workers: 20, Image: "registry.example/hitless:1", Port: 7707}, {Image: "hitless", HostNetwork: true, Port: 7707}} {
		c := &Cluster{Client: fake.NewClientset()}
		if err := c.MakeFleet(t.Context(), "run", f); err != nil {
			t.Fatal(err)
		}
		var spec corev1.PodSpec
		if f.Workers > 0 {
			d, err := c.Client.AppsV1().Deployments("run").Get(t.Context(), FleetName, metav1.GetOptions{})
			if err != nil || *d.Spec.Replicas != 20 {
				t.Fatalf("%v, %v", d, err)
			}
			spec = d.Spec.Template.Spec
		} else {
			d, err := c.Client.AppsV1().DaemonSets("run").Get(t.Context(), FleetName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			spec = d.Spec.Template.Spec
		}
		pod, own := spec.SecurityContext, spec.Containers[0].SecurityContext
		if !*pod.RunAsNonRoot || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *own.AllowPrivilegeEscalation ||
			own.Capabilities.Drop[0] != "ALL" || *spec.AutomountServiceAccountToken || len(spec.Volumes) > 0 || spec.HostPID || spec.HostIPC {
			t.Errorf("%+v violates restricted", spec)
		}
		if spec.HostNetwork != f.HostNetwork || spec.Containers[0].Resources.Requests.Memory().IsZero() || len(spec.TopologySpreadConstraints) != 1 {
			t.Errorf("%+v", spec)
		}
	}
}

func TestNamespaceOfFleetInHostNetwork(t *testing.T) {
	for onHost, want := range map[bool]string{false: "restricted", true: "privileged"} {
		c := &Cluster{Client: fake.NewClientset()}
		if _, err := c.MakeNamespace(t.Context(), "rollout", onHost); err != nil {
			t.Fatal(err)
		}
		if spaces, err := c.Namespaces(t.Context()); err != nil || len(spaces) != 1 || spaces[0].Labels[enforce] != want {
			t.Errorf("on the host %v: %+v (%v), want Pod Security %s", onHost, spaces, err, want)
		}
	}
}

// Workers lists running pods only, not pods that have not started or have ended.
func TestWorkersListsRunningPods(t *testing.T) {
	pod := func(name, app string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "run", Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: phase}}
	}
	c := &Cluster{Client: fake.NewClientset(pod("fleet-a", FleetName, corev1.PodRunning), pod("fleet-b", FleetName, corev1.PodPending),
		pod("fleet-c", FleetName, corev1.PodFailed), pod("web-a", "web", corev1.PodRunning))}
	all, err := c.Workers(t.Context(), "run")
	if err != nil || len(all) != 1 || all[0] != (Worker{"fleet-a", "node-1"}) {
		t.Errorf("%v, %v", all, err)
	}
	waiting := pod("fleet-d", FleetName, corev1.PodPending)
	waiting.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ErrImagePull", Message: "no such image"}}}}
	c = &Cluster{Client: fake.NewClientset(pod("fleet-a", FleetName, corev1.PodRunning), waiting)}
	if all, err := c.Workers(t.Context(), "run"); len(all) != 1 || err == nil || !strings.Contains(err.Error(), "fleet-d waits: ErrImagePull: no such image") {
		t.Errorf("%v, %v, want the running pod, and the reason why the other waits", all, err)
	}
}

// Requests go through the API server, and the errors distinguish a missing pod from one that does not answer.
func TestWorkerRequestsGoThroughAPIServer(t *testing.T) {
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		switch {
		case strings.Contains(r.URL.Path, "gone"):
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
		case strings.Contains(r.URL.Path, "silent"):
			http.Error(w, "dial tcp 10.0.0.1:7707: i/o timeout", http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("records\x00"))
		}
	}))
	defer api.Close()
	c, err := New(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(pod string) ([]byte, error) {
		return c.CallWorker(context.Background(), "run", pod, 7707, "/records", map[string]string{"from": "7"})
	}
	if body, err := ask("fleet-a"); err != nil || string(body) != "records\x00" {
		t.Errorf("%q, %v", body, err)
	}
	if _, err := ask("gone"); !apierrors.IsNotFound(err) {
		t.Errorf("%v, want an error that the pod does not exist", err)
	}
	c.ReportSilences(func(from, to time.Time) {
		t.Errorf("a silence of the API server of %v was reported, but only a pod was unreachable", to.Sub(from))
	})
	if _, err := ask("silent"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("%v, want an error that the pod does not answer", err)
	}
	if _, err := c.Client.CoreV1().Services("run").Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
		t.Error("a Service that does not exist was accepted")
	}
	if len(asked) != 4 {
		t.Errorf("requests %q, want each once", asked)
	}
	if want := "GET /api/v1/namespaces/run/pods/http:fleet-a:7707/proxy/records?from=7"; asked[0] != want {
		t.Errorf("request %s, want %s", asked[0], want)
	}
}

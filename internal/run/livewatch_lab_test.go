//go:build lab && nightly

package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes/watch"
	"github.com/hitless/hitless/record"
)

// watchPart is the time of each part of the watched hour. HITLESS_WATCH_PART=1m makes it shorter.
func watchPart(t *testing.T) time.Duration {
	text := os.Getenv("HITLESS_WATCH_PART")
	if text == "" {
		return 6 * time.Minute
	}
	part, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return part
}

// A watch for an hour of a lab that it does not know: rollouts, a restart of the proxies, a Service that changes its address, a deleted one, an
// API outage of 60 s and a killed watch cost nothing. The injected loss of a Service without pods is found with its cause, and nothing else is.
func TestNightlyWatchOfALabForAnHour(t *testing.T) {
	part := watchPart(t)
	w := &watchedLab{t: t, kubeconfig: labUp(t, "kube-proxy@v1.37.1/nftables", "--proxy-daemonset"), out: filepath.Join(t.TempDir(), "watch")}
	w.client = clientOf(t, w.kubeconfig)
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "moved", "gone", "broken"} {
		w.create(name)
	}
	w.do("start", "--kubeconfig", w.kubeconfig, "--namespace", shop)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"a rollout", func() { w.rollout("web", 1) }},
		{"the proxies are restarted", w.restartProxies},
		{"a Service changes its address", func() { w.move("moved") }},
		{"a Service is deleted", func() { w.remove("gone") }},
		{"a Service appears", func() { w.create("late") }},
		{"the API is away for 60 s", w.outage},
		{"a Service loses its pods", func() { w.empty("broken") }},
		{"the watch is killed", w.killWatch},
		{"another rollout", func() { w.rollout("late", 2) }},
	} {
		t.Logf("%s: %s", time.Now().Format(time.TimeOnly), step.name)
		step.do()
		w.sleep(part)
	}
	w.judge()
}

const shop = "shop"

// watchedLab is a lab whose Services are watched.
type watchedLab struct {
	t               *testing.T
	client          kubernetes.Interface
	kubeconfig, out string
}

// sleep lets the measurement go on: time is what the test is about.
func (w *watchedLab) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
		w.t.FailNow()
	}
}

// do runs a command of the watch from the network of the lab's client.
func (w *watchedLab) do(verb string, flags ...string) string {
	w.t.Helper()
	words := append([]string{"lab", "shell", "--kubeconfig", w.kubeconfig, "--", program, "watch", verb, "--out", w.out}, flags...)
	out, err := exec.Command(program, words...).CombinedOutput()
	if err != nil && verb != "stop" { // which has the verdict
		w.t.Fatalf("watch %s: %v:\n%s", verb, err, out)
	}
	return string(out)
}

// create makes a Deployment of two pods and its Service of type LoadBalancer, and waits for its address and pods.
func (w *watchedLab) create(name string) {
	w.t.Helper()
	labels := map[string]string{"app": name}
	grace := int64(10)
	_, err := w.client.AppsV1().Deployments(shop).Create(w.t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "web", Image: "registry.k8s.io/e2e-test-images/agnhost:2.53", Args: []string{"netexec", "--http-port=8080", "--delay-shutdown=5"},
					ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}}}}}}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.awaitPods(name, 2)
	_, err = w.client.CoreV1().Services(shop).Create(w.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: labels,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.await(name+" has an address", func(ctx context.Context) (bool, error) {
		s, err := w.client.CoreV1().Services(shop).Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(s.Status.LoadBalancer.Ingress) > 0, err
	})
}

func (w *watchedLab) await(what string, holds func(context.Context) (bool, error)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		ok, err := holds(ctx)
		if ok {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%s: not within 2 minutes (%v)", what, err)
		}
	}
}

func (w *watchedLab) awaitPods(name string, n int32) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s has %d pods", name, n), func(ctx context.Context) (bool, error) {
		d, err := w.client.AppsV1().Deployments(shop).Get(ctx, name, metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == n && d.Status.ReadyReplicas == n && d.Status.Replicas == n, err
	})
}

func (w *watchedLab) patch(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func (w *watchedLab) rollout(name string, generation int) {
	_, err := w.client.AppsV1().Deployments(shop).Patch(w.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"generation":"%d"}}}}}`, generation), metav1.PatchOptions{})
	w.patch("a rollout", err)
	w.awaitPods(name, 2)
}

func (w *watchedLab) scale(name string, n int32) {
	_, err := w.client.AppsV1().Deployments(shop).Patch(w.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{})
	w.patch("scaling", err)
	w.awaitPods(name, n)
}

// restartProxies replaces the pods of the proxies' DaemonSet, as an upgrade does.
func (w *watchedLab) restartProxies() {
	sets := w.client.AppsV1().DaemonSets("kube-system")
	_, err := sets.Patch(w.t.Context(), "kube-proxy", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"restarted":"1"}}}}}`), metav1.PatchOptions{})
	w.patch("restarting the proxies", err)
	w.await("all proxies are new", func(ctx context.Context) (bool, error) {
		d, err := sets.Get(ctx, "kube-proxy", metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedNumberScheduled == 3 && d.Status.NumberReady == 3, err
	})
}

// move takes the Service's address away and lets the load balancer give it the next one.
func (w *watchedLab) move(name string) {
	services := w.client.CoreV1().Services(shop)
	before, err := services.Get(w.t.Context(), name, metav1.GetOptions{})
	w.patch("reading the Service", err)
	change := func(kind string) {
		_, err := services.Patch(w.t.Context(), name, types.MergePatchType, []byte(kind), metav1.PatchOptions{})
		w.patch("changing the Service", err)
	}
	change(`{"spec":{"type":"ClusterIP"}}`)
	w.await(name+" has no address", func(ctx context.Context) (bool, error) {
		s, err := services.Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(s.Status.LoadBalancer.Ingress) == 0, err
	})
	change(`{"spec":{"type":"LoadBalancer"}}`)
	w.await(name+" has another address", func(ctx context.Context) (bool, error) {
		s, err := services.Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(s.Status.LoadBalancer.Ingress) > 0, err
	})
	after, err := services.Get(w.t.Context(), name, metav1.GetOptions{})
	w.patch("reading the Service", err)
	w.t.Logf("%s went from %s to %s", name, before.Status.LoadBalancer.Ingress[0].IP, after.Status.LoadBalancer.Ingress[0].IP)
}

func (w *watchedLab) remove(name string) {
	w.patch("deleting the Service", w.client.CoreV1().Services(shop).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// empty leaves the Service without a pod for a moment: the injected loss.
func (w *watchedLab) empty(name string) {
	w.scale(name, 0)
	w.scale(name, 2)
}

// processes are those of a program below this test's process.
func processes(t *testing.T, name string) (pids []int) {
	t.Helper()
	parent := map[int]int{}
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range dirs {
		data, err := os.ReadFile(file) // pid (name) state ppid
		head, rest, ok := bytes.Cut(data, []byte(") "))
		if err != nil || !ok {
			continue
		}
		pidText, comm, _ := strings.Cut(string(head), " (")
		fields := strings.Fields(string(rest))
		pid, _ := strconv.Atoi(pidText)
		parent[pid], _ = strconv.Atoi(fields[1])
		if comm == name[:min(len(name), 15)] {
			found = append(found, pid)
		}
	}
	for _, pid := range found {
		for at := pid; at > 1; at = parent[at] {
			if parent[at] == os.Getpid() {
				pids = append(pids, pid)
				break
			}
		}
	}
	if len(pids) == 0 {
		t.Fatalf("no process %s below this one", name)
	}
	return pids
}

func (w *watchedLab) signal(program string, signal syscall.Signal) {
	w.t.Helper()
	for _, pid := range processes(w.t, program) {
		if err := syscall.Kill(pid, signal); err != nil {
			w.t.Errorf("%s: %v", program, err)
		}
	}
}

// outage stops the control plane for 60 s, the controllers with it: otherwise they take the nodes for dead.
func (w *watchedLab) outage() {
	for _, program := range []string{"kube-controller-manager", "kube-apiserver"} {
		w.signal(program, syscall.SIGSTOP)
		defer w.signal(program, syscall.SIGCONT)
	}
	w.sleep(time.Minute)
}

// killWatch kills the watch, and lets it go on after 5 s.
func (w *watchedLab) killWatch() {
	data, err := os.ReadFile(filepath.Join(w.out, watch.StateFile))
	w.patch("reading the state", err)
	var state watch.State
	w.patch("reading the state", json.Unmarshal(data, &state))
	w.patch("killing the watch", syscall.Kill(state.Pid, syscall.SIGKILL))
	w.sleep(5 * time.Second)
	w.do("resume")
}

// judge stops the watch. Only the Service that lost its pods has losses, with that cause; each lane's totals are those of its record.
func (w *watchedLab) judge() {
	said := w.do("stop")
	r, err := analysis.Read(filepath.Join(w.out, "report.json"))
	if err != nil {
		w.t.Fatalf("%v:\n%s", err, said)
	}
	if r.Verdict != analysis.Fail {
		w.t.Errorf("%s, want fail:\n%s", r.Verdict, said)
	}
	lost := 0
	for _, l := range r.Lanes {
		for _, o := range l.Outages {
			if !strings.Contains(l.Name, "broken") || !strings.HasPrefix(o.Cause.Event, "endpoint ") && !strings.HasPrefix(o.Cause.Event, "pod ") {
				w.t.Errorf("lane %s: %d failed at %.1f s, because of %q", l.Name, o.Failed(), o.From, o.Cause.Text)
			}
			lost += o.Failed()
		}
	}
	if lost == 0 {
		w.t.Errorf("the injected loss was not found:\n%s", said)
	}
	h, err := record.OpenHistory(w.out)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := analysis.CheckAgreement(h, r); err != nil {
		w.t.Error(err)
	}
}

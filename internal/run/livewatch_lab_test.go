//go:build lab && nightly

package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"github.com/hitless/hitless/scenarios"
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
				Containers: []corev1.Container{{Name: "web", Image: scenarios.Image, Args: []string{"netexec", "--http-port=8080", "--delay-shutdown=5"},
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
	w.awaitAddress(name)
}

// awaitAddress waits until the load balancer has given the Service an address.
func (w *watchedLab) awaitAddress(name string) (address string) {
	w.t.Helper()
	w.await(name+" has an address", func(ctx context.Context) (bool, error) {
		s, err := w.client.CoreV1().Services(shop).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(s.Status.LoadBalancer.Ingress) > 0 {
			address = s.Status.LoadBalancer.Ingress[0].IP
		}
		return address != "", err
	})
	return address
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

func (w *watchedLab) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func (w *watchedLab) rollout(name string, generation int) {
	_, err := w.client.AppsV1().Deployments(shop).Patch(w.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"generation":"%d"}}}}}`, generation), metav1.PatchOptions{})
	w.must("a rollout", err)
	w.awaitPods(name, 2)
}

func (w *watchedLab) scale(name string, n int32) {
	_, err := w.client.AppsV1().Deployments(shop).Patch(w.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{})
	w.must("scaling", err)
	w.awaitPods(name, n)
}

// restartProxies replaces the pods of the proxies' DaemonSet, as an upgrade does.
func (w *watchedLab) restartProxies() {
	sets := w.client.AppsV1().DaemonSets("kube-system")
	_, err := sets.Patch(w.t.Context(), "kube-proxy", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"restarted":"1"}}}}}`), metav1.PatchOptions{})
	w.must("restarting the proxies", err)
	w.await("all proxies are new", func(ctx context.Context) (bool, error) {
		d, err := sets.Get(ctx, "kube-proxy", metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedNumberScheduled == 3 && d.Status.NumberReady == 3, err
	})
}

// move takes the Service's address away and lets the load balancer give it the next one.
func (w *watchedLab) move(name string) {
	services := w.client.CoreV1().Services(shop)
	before := w.awaitAddress(name)
	change := func(kind string) {
		_, err := services.Patch(w.t.Context(), name, types.MergePatchType, []byte(kind), metav1.PatchOptions{})
		w.must("changing the Service", err)
	}
	change(`{"spec":{"type":"ClusterIP"}}`)
	w.await(name+" has no address", func(ctx context.Context) (bool, error) {
		s, err := services.Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(s.Status.LoadBalancer.Ingress) == 0, err
	})
	change(`{"spec":{"type":"LoadBalancer"}}`)
	w.t.Logf("%s went from %s to %s", name, before, w.awaitAddress(name))
}

func (w *watchedLab) remove(name string) {
	w.must("deleting the Service", w.client.CoreV1().Services(shop).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// empty leaves the Service without a pod for a moment: the injected loss. A Deployment does not count the pods that terminate and serve.
func (w *watchedLab) empty(name string) {
	w.scale(name, 0)
	w.await(name+" has no pod", func(ctx context.Context) (bool, error) {
		pods, err := w.client.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		return err == nil && len(pods.Items) == 0, err
	})
	w.scale(name, 2)
}

// signal sends a signal to the processes of a program of the lab.
func (w *watchedLab) signal(program string, signal syscall.Signal) {
	w.t.Helper()
	found := false
	for _, pid := range descendants(os.Getpid()) {
		path, _, _ := strings.Cut(commandLine(pid), "\x00")
		if filepath.Base(path) != program {
			continue
		}
		found = true
		if err := syscall.Kill(pid, signal); err != nil {
			w.t.Errorf("%s: %v", program, err)
		}
	}
	if !found {
		w.t.Fatalf("no process %s below this one", program)
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
	w.must("reading the state", err)
	var state watch.State
	w.must("reading the state", json.Unmarshal(data, &state))
	w.must("killing the watch", syscall.Kill(state.Pid, syscall.SIGKILL))
	w.sleep(5 * time.Second)
	w.do("resume")
}

// excused reports whether a loss of a lane is within an excuse of its Service: the API tells late that an address is no longer the Service's.
func excused(r *analysis.Report, lane string, o analysis.OutageReport) bool {
	return slices.ContainsFunc(r.Excused, func(e analysis.ExcusedReport) bool {
		return strings.HasPrefix(lane, e.Service+":") && e.From <= o.From && o.To <= e.Until
	})
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
	lost, attempts := 0, map[string]int{}
	for _, l := range r.Lanes {
		service, _, _ := strings.Cut(l.Name, ":")
		attempts[service] += l.Attempts
		for _, o := range l.Outages {
			if excused(r, l.Name, o) {
				continue
			}
			if !strings.Contains(l.Name, "broken") || !strings.HasPrefix(o.Cause.Event, "endpoint ") && !strings.HasPrefix(o.Cause.Event, "pod ") {
				w.t.Errorf("lane %s: %d failed at %.1f s, because of %q", l.Name, o.Failed(), o.From, o.Cause.Text)
			}
			lost += o.Failed()
		}
	}
	if lost == 0 {
		w.t.Errorf("the injected loss was not found:\n%s", said)
	}
	for _, name := range []string{"web", "moved", "gone", "late", "broken"} {
		if attempts[shop+"/"+name] == 0 {
			w.t.Errorf("the Service %s was not measured: %v", name, attempts)
		}
	}
	h, err := record.OpenHistory(w.out)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := analysis.CheckAgreement(h, r); err != nil {
		w.t.Error(err)
	}
}

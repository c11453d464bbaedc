package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/controllers"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/record"
)

// stand is a cluster on which a run can complete: the replay control plane with controllers, and simulated kubelets and node ports. The
// run's requests go through a door, which can have faults and can be shut.
type stand struct {
	server     *replay.Server
	direct     kubernetes.Interface // not through the door
	kubeconfig string
	door       *door
	clock      *skipping
	idle       func()       // stops controllers and kubelets
	controller atomic.Int32 // behaviour of the proxy's DaemonSet controller
	deaf       atomic.Bool  // the proxies follow no change of an EndpointSlice that hitless writes
}

// standing starts a cluster until the test ends. The fault, if not nil, is in its door.
func standing(t *testing.T, fault func(next http.Handler) http.Handler) *stand {
	t.Helper()
	s := &stand{server: replay.New(), clock: &skipping{}}
	s.clock.shortest.Store(int64(waits))
	host := testfiles.Loopback(t)
	nodes := []string{"worker-1", "worker-2", "worker-3"}
	replaytest.AddNodes(t, s.server, host, nodes...)
	inside := httptest.NewServer(s.server.Handler())
	t.Cleanup(func() { inside.CloseClientConnections(); inside.Close() })
	s.direct = kubernetes.NewForConfigOrDie(&rest.Config{Host: inside.URL, QPS: -1})
	handler := s.server.Handler()
	if fault != nil {
		handler = fault(handler)
	}
	s.door = &door{handler: handler, address: host + ":0"}
	if err := s.door.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.door.shut)
	s.kubeconfig = replaytest.Kubeconfig(t, "http://"+s.door.address)
	s.addProxy(t)
	s.play(t, nodes, host)
	return s
}

// play simulates kubelets and node ports until the test ends.
func (s *stand) play(t *testing.T, nodes []string, host string) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	ports := &nodePorts{host: host, open: map[int32]io.Closer{}, followed: func(service, namespace string) bool {
		return !s.deaf.Load() && s.hasEndpoint(ctx, service, namespace)
	}}
	for _, part := range []func() error{
		func() error { return controllers.Run(ctx, s.direct, record.IPv4, nodes) },
		func() error { return playKubelet(ctx, s.direct) },
		func() error { return ports.play(ctx, s.direct) },
		func() error { return playProxySet(ctx, s.direct, nodes, &s.controller) },
	} {
		all.Go(func() {
			if err := part(); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	s.idle = func() { cancel(); all.Wait() }
	t.Cleanup(s.idle)
}

// door is a proxy to an API server. When it is shut, connections are refused and open ones are closed.
type door struct {
	handler http.Handler

	mu      sync.Mutex
	address string
	server  *http.Server
}

func (d *door) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		return err
	}
	d.address, d.server = l.Addr().String(), &http.Server{Handler: d.handler}
	go d.server.Serve(l)
	return nil
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		_ = d.server.Close()
		d.server = nil
	}
}

// waits is the shortest sleep that is skipped; shorter ones are between two polls.
const waits = 5 * time.Second

// skipping is a clock that skips long sleeps, so that a test of minutes is short. Short sleeps are real.
type skipping struct {
	shortest atomic.Int64 // of the sleeps that are skipped
	skipped  atomic.Int64
	after    atomic.Pointer[func(now time.Time)] // called at each skip; nil for none
}

// Now returns the time of day plus all skipped time.
func (c *skipping) Now() time.Time { return time.Now().Add(time.Duration(c.skipped.Load())) }

// Sleep skips or waits d.
func (c *skipping) Sleep(ctx context.Context, d time.Duration) error {
	if d >= time.Duration(c.shortest.Load()) {
		c.skipped.Add(int64(max(d, 0)))
		if told := c.after.Load(); told != nil {
			(*told)(c.Now())
		}
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hurry skips every sleep from now on.
func (c *skipping) hurry() { c.shortest.Store(0) }

// rest skips only long ones again.
func (c *skipping) rest() { c.shortest.Store(int64(waits)) }

// ended is the result of a run.
type ended struct {
	out    string
	said   []string
	result *run.Result
	err    error
}

// run runs a scenario on the cluster over a node port, with the skipping clock.
func (s *stand) run(ctx context.Context, t *testing.T, scenario string, change func(*run.Options)) ended {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := ended{out: filepath.Join(t.TempDir(), "out")}
	o := run.Options{Scenario: scenario, Out: e.out, Program: program, Rate: 10,
		Set:  map[string]string{"trafficPolicy": "Cluster", "checkInterval": "10s"},
		Live: &site.LiveOptions{Kubeconfig: s.kubeconfig, Target: "nodePort", Clock: s.clock},
		Progress: progress.Lines(func(text string) {
			e.said = append(e.said, text)
			switch { // the pauses between the proofs of the detector are short
			case strings.Contains(text, "phase baseline"):
				s.clock.shortest.Store(int64(900 * time.Millisecond))
			case strings.Contains(text, "phase scenario"):
				s.clock.rest()
			}
		})}
	if change != nil {
		change(&o)
	}
	e.result, e.err = run.Run(ctx, o)
	return e
}

// code returns the exit code of a run, as cmd/hitless does.
func (e ended) code() int {
	switch {
	case e.err == nil && e.result.Report != nil:
		return e.result.Report.Verdict.ExitCode()
	case e.err == nil:
		return 0
	case errors.Is(e.err, context.Canceled):
		return 130
	case errors.As(e.err, new(*run.InvalidError)):
		return 3
	default:
		return 2
	}
}

// want fails the test unless the run ended with that exit code and the words in its error.
func (e ended) want(t *testing.T, code int, words ...string) {
	t.Helper()
	if e.code() != code {
		t.Errorf("exit code %d, want %d: %v", e.code(), code, e.err)
	}
	for _, word := range words {
		if e.err == nil || !strings.Contains(e.err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, e.err)
		}
	}
}

// finished fails the test unless the run completed its scenario and has a report. It does not check the verdict, because the lanes use
// the real clock and miss the skipped pauses.
func (e ended) finished(t *testing.T) {
	t.Helper()
	if e.err != nil || e.result == nil || e.result.Report == nil {
		t.Fatalf("the run did not complete: %v\n%s", e.err, strings.Join(e.said, "\n"))
	}
	if last := e.events(t, record.KindPhase); len(last) == 0 || last[len(last)-1].Object != "end" {
		t.Errorf("the record ends with %v", last)
	}
}

// events returns the events of a kind in the run's record.
func (e ended) events(t *testing.T, kind record.Kind) (all []record.Event) {
	t.Helper()
	h, err := record.OpenHistory(filepath.Join(e.out, "history"))
	if err != nil {
		t.Fatal(err)
	}
	for event, err := range h.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if event.Kind() == kind {
			all = append(all, event)
		}
	}
	return all
}

// last returns the run's last message.
func (e ended) last() string {
	if len(e.said) == 0 {
		return ""
	}
	return e.said[len(e.said)-1]
}

// left returns the names of the namespaces of runs.
func (s *stand) left(t *testing.T) (names []string) {
	t.Helper()
	list, err := s.direct.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	return names
}

// playKubelet makes pods ready, and removes terminating ones.
func playKubelet(ctx context.Context, client kubernetes.Interface) error {
	none := int64(0)
	return every(ctx, func() error {
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch {
			case pod.DeletionTimestamp != nil:
				_ = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}) // it may be gone
			case setReady(pod):
				_, _ = client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}) // a conflict is met again
			}
		}
		return nil
	})
}

// setReady sets the readiness of a running pod from its gates, and reports whether it changed.
func setReady(pod *corev1.Pod) (changed bool) {
	is := func(kind corev1.PodConditionType) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	}
	ready := corev1.ConditionTrue
	if pod.Spec.Containers[0].Image == badImage {
		ready = corev1.ConditionFalse
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}}}}
	}
	for _, g := range pod.Spec.ReadinessGates {
		if !is(g.ConditionType) {
			ready = corev1.ConditionFalse
		}
	}
	if pod.Status.PodIP != "" && is(corev1.PodReady) == (ready == corev1.ConditionTrue) {
		return false
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.244.1.2"
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }),
		corev1.PodCondition{Type: corev1.PodReady, Status: ready})
	return true
}

// every calls a function every 50 ms until ctx ends.
func every(ctx context.Context, do func() error) error {
	for ctx.Err() == nil {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// hasEndpoint reports whether an EndpointSlice gives a Service an endpoint.
func (s *stand) hasEndpoint(ctx context.Context, service, namespace string) bool {
	slices, err := s.direct.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	return err == nil && len(slices.Items) > 0 && len(slices.Items[0].Endpoints) > 0
}

// nodePorts answers on the node ports of all Services like one of their pods. A Service without a selector answers only while it
// has an endpoint that the proxies have followed.
type nodePorts struct {
	host     string
	open     map[int32]io.Closer
	followed func(service, namespace string) bool
}

func (p *nodePorts) play(ctx context.Context, client kubernetes.Interface) error {
	defer func() {
		for _, l := range p.open {
			_ = l.Close()
		}
	}()
	return every(ctx, func() error {
		services, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range services.Items {
			for _, port := range s.Spec.Ports {
				if err := p.serve(s, port.NodePort); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (p *nodePorts) serve(service corev1.Service, port int32) error {
	if port == 0 || p.open[port] != nil {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if len(service.Spec.Selector) == 0 && !p.followed(service.Name, service.Namespace) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, service.Name+"-1")
	})}
	p.open[port] = server
	go server.Serve(l)
	return nil
}

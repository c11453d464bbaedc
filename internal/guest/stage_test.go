//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/lab/controllers"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// stage is a replay control plane with its controllers, and a World whose clock hurries. It needs a bubble of synctest.
type stage struct {
	plane  *replay.Server
	client kubernetes.Interface
	world  scenarios.World
	// kubelet, if set, says what becomes of a pod that has the readiness before and should have the other.
	kubelet func(pod *corev1.Pod, before, should corev1.ConditionStatus) corev1.ConditionStatus

	failures func() int                                                  // none when nil
	hold     func(ctx context.Context, target string) (io.Closer, error) // a connection that nobody counts when nil

	over func(node string, answers bool) bool // whether a Service answers over a node, if its endpoints say so; as they say when nil

	mu       sync.Mutex
	now      time.Duration
	sleepers []time.Duration // when each ends
	jumped   chan struct{}   // closed at the next jump of now
	events   []record.Event
	lanes    []scenarios.LaneSpec
}

func newStage(t *testing.T, name string, set map[string]string) *stage {
	t.Helper()
	return stageOf(t, find(t, name), set)
}

func stageOf(t *testing.T, scenario scenarios.Scenario, set map[string]string) *stage {
	t.Helper()
	synctest.Wait() // panics outside of a bubble
	plane := replay.New()
	config := &rest.Config{Host: "http://plane", QPS: -1, Transport: servePipes(t, plane.Handler())}
	s := &stage{plane: plane, client: kubernetes.NewForConfigOrDie(config)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- controllers.Run(ctx, s.client, record.IPv4, []string{"node-1", "node-2"}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	cluster, err := resources.New(&rest.Config{Host: config.Host, QPS: -1, Transport: settled{config.Transport}})
	if err != nil {
		t.Fatal(err)
	}
	params, err := scenario.Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	s.world = scenarios.World{Cluster: cluster, Nodes: []string{"node-1", "node-2"}, Prober: s, Recorder: s, Clock: s, Params: params, Rate: 100,
		Site: scenarios.NewSite(s, idle{}).OfferProxies(idle{}).OfferLoadBalancer(idle{}).Offer(scenarios.SameAddresses, scenarios.ClientPlacement, scenarios.DatagramBackends, scenarios.OwnNodes)}
	return s
}

// find returns the scenario of that name as a lab runs it.
func find(t *testing.T, name string) scenarios.Scenario {
	t.Helper()
	scenario, err := scenarios.Find(name, Offers("replay", "vm"))
	if err != nil {
		t.Fatal(err)
	}
	return scenario
}

// Reach answers always.
func (s *stage) Reach(context.Context, string, string) error { return nil }

// Hold opens what the test counts, or nothing.
func (s *stage) Hold(ctx context.Context, target string) (io.Closer, error) {
	if s.hold != nil {
		return s.hold(ctx, target)
	}
	return io.NopCloser(strings.NewReader("")), nil
}

// Over answers over each node while a Service has an endpoint.
func (s *stage) Over(ctx context.Context, node string, _ record.Family, service *corev1.Service) error {
	slices, err := s.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return err
	}
	answers := len(slices.Items) > 0 && len(slices.Items[0].Endpoints) > 0
	if s.over != nil {
		answers = s.over(node, answers)
	}
	if !answers {
		return errors.New("no endpoint")
	}
	return nil
}

// idle stands for proxies and faults that a scenario does not need.
type idle struct {
	scenarios.Proxies
	scenarios.Faults
}

func (idle) Pid(string) (int, error)                           { return 1, nil }
func (idle) SyncError() error                                  { return nil }
func (idle) Exited() error                                     { return nil }
func (idle) Members(string) ([]string, bool)                   { return nil, false }
func (idle) Inject(context.Context, scenarios.FaultSpec) error { return nil }

func (s *stage) Now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Sleep lets the run's time jump to the end of the sleeper that ends first, and plays kubelet and balancer. Before that it lets the
// controllers and other sleepers finish: the clock of a bubble stands still while any of them can go on.
func (s *stage) Sleep(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	end := s.now + d
	s.sleepers = append(s.sleepers, end)
	s.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	for {
		jumped := s.jump(end)
		if jumped == nil {
			return errors.Join(s.playKubelet(ctx), s.playBalancer(ctx))
		}
		<-jumped
	}
}

// jump lets the time jump to the end of a sleeper. It returns a channel of the next jump if another sleeper ends before.
func (s *stage) jump(end time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jumped == nil {
		s.jumped = make(chan struct{})
	}
	if slices.Min(s.sleepers) < end {
		return s.jumped
	}
	i := slices.Index(s.sleepers, end)
	s.sleepers = slices.Delete(s.sleepers, i, i+1)
	s.now = max(s.now, end)
	close(s.jumped)
	s.jumped = nil
	return nil
}

// playKubelet makes pods ready as far as their gates allow, or does what the test wants instead.
func (s *stage) playKubelet(ctx context.Context) error {
	pods, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil {
			if err := s.client.CoreV1().Pods("default").Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
				return err
			}
			continue
		}
		ready := corev1.ConditionTrue
		if len(pod.Spec.ReadinessGates) > 0 && condition(pod, pod.Spec.ReadinessGates[0].ConditionType) != corev1.ConditionTrue {
			ready = corev1.ConditionFalse
		}
		before := condition(pod, corev1.PodReady)
		if s.kubelet != nil {
			ready = s.kubelet(pod, before, ready)
		}
		if before == ready {
			continue
		}
		conditions := slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		pod.Status.Conditions = append(conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready})
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.244.1.%d", 2+i)
		if _, err := s.client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func (s *stage) playBalancer(ctx context.Context) error {
	services, err := s.client.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range services.Items {
		if v := &services.Items[i]; len(v.Status.LoadBalancer.Ingress) == 0 {
			v.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
			// The controller gives the Service its address, and the scenario may delete it: a conflict is tried again at the next Sleep.
			_, err := s.client.CoreV1().Services("default").UpdateStatus(ctx, v, metav1.UpdateOptions{})
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

func (s *stage) Event(e record.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *stage) Attempt(record.Attempt) {}

func (s *stage) Failures() int {
	if s.failures == nil {
		return 0
	}
	return s.failures()
}

func (s *stage) StartLane(_ context.Context, l scenarios.LaneSpec) (func() error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = append(s.lanes, l)
	return func() error { return nil }, nil
}

// steps returns how the steps ended whose names begin so.
func (s *stage) steps(prefix string) (states []string) {
	for _, e := range s.events {
		if b, is := e.Body.(record.Step); is && strings.HasPrefix(e.Object, prefix) {
			states = append(states, string(b.State))
		}
	}
	return states
}

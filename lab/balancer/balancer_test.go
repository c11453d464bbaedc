package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// fakeRecorder keeps all events.
type fakeRecorder struct {
	mu     sync.Mutex
	events []record.Event
}

func (n *fakeRecorder) Event(e record.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

func (n *fakeRecorder) Attempt(record.Attempt) {}

// eventLines returns one line for each event of a kind: its time in milliseconds and the given attributes, as on disk.
func (n *fakeRecorder) eventLines(kind record.Kind, attrs ...string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, e := range n.events {
		if e.Kind() != kind {
			continue
		}
		var disk struct{ Attrs map[string]string }
		if line, err := json.Marshal(e); err != nil || json.Unmarshal(line, &disk) != nil {
			panic(fmt.Sprintf("%+v: %v", e, err))
		}
		words := []string{fmt.Sprint(e.At.Milliseconds())}
		for _, a := range attrs {
			words = append(words, disk.Attrs[a])
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

func (n *fakeRecorder) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = nil
}

// fakeForwarder stores the tables that it is given.
type fakeForwarder struct {
	tables    map[string]table
	refuses   error
	closed    bool
	ownChecks bool
}

func (p *fakeForwarder) set(t table) error    { p.tables[t.service] = t; return p.refuses }
func (p *fakeForwarder) remove(t table) error { delete(p.tables, t.service); return nil }
func (p *fakeForwarder) checksHealth() bool   { return p.ownChecks }
func (p *fakeForwarder) close() error         { p.closed = true; return nil }

// testBalancer is a balancer with a fake API server, a fake forwarder and three fake nodes, in virtual time.
type testBalancer struct {
	t        *testing.T
	client   *fake.Clientset
	recorder *fakeRecorder
	path     *fakeForwarder
	b        *Balancer
	start    time.Time
	mu       sync.Mutex
	sick     map[string]int // HTTP status by node address, 200 if absent; -1 refuses connections
	stop     func() error
}

func (w *testBalancer) now() time.Duration { return time.Since(w.start) }

func (w *testBalancer) dial(_ context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick[host] < 0 {
		return nil, syscall.ECONNREFUSED
	}
	return (&server{status: or(w.sick[host], 200)}).dial(context.Background(), "", "")
}

func (w *testBalancer) make(node string, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sick[node] = status
}

// start runs a balancer with fakes in virtual time. The informers have synced when it returns, at 100 ms.
func start(t *testing.T, ownChecks bool, objects ...runtime.Object) *testBalancer {
	return startIn(t, record.IPv4, ownChecks, objects...)
}

// startIn is start in a lab of a family.
func startIn(t *testing.T, family record.Family, ownChecks bool, objects ...runtime.Object) *testBalancer {
	w := &testBalancer{t: t, client: fake.NewClientset(objects...), recorder: &fakeRecorder{}, start: time.Now(), sick: map[string]int{},
		path: &fakeForwarder{tables: map[string]table{}, ownChecks: ownChecks}}
	cfg, err := Config{Net: topology.Planned(3, family), Client: w.client, Recorder: w.recorder, Now: w.now, Seed: 7,
		Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	w.b = newBalancer(cfg)
	w.b.path, w.b.dial = w.path, w.dial
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.b.Run(ctx) }()
	w.stop = func() error { cancel(); return <-ended }
	t.Cleanup(func() { cancel(); synctest.Wait() })
	w.until(100 * time.Millisecond)
	return w
}

// until advances virtual time to a time of the run.
func (w *testBalancer) until(at time.Duration) {
	time.Sleep(at - w.now())
	synctest.Wait()
}

func (w *testBalancer) create(svc *corev1.Service) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Services(svc.Namespace).Create(w.t.Context(), svc, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *testBalancer) update(svc *corev1.Service) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Services(svc.Namespace).Update(w.t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *testBalancer) remove(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().Services("default").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// address returns the external addresses in the Service's status.
func (w *testBalancer) address(name string) string {
	w.t.Helper()
	svc, err := w.client.CoreV1().Services("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeVIP {
			w.t.Errorf("%s: the address %s is not of mode VIP", name, in.IP)
		}
		all = append(all, in.IP)
	}
	return strings.Join(all, ",")
}

func (w *testBalancer) expect(what string, want []string, got []string) {
	w.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func lb(name string, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: "Local", HealthCheckNodePort: 31000,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: "TCP"}}}}
	for _, c := range change {
		c(svc)
	}
	return svc
}

func nodeObjects(count int) []runtime.Object {
	var all []runtime.Object
	for i := 1; i <= count; i++ {
		all = append(all, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}})
	}
	return all
}

func TestMembershipFollowsFallAndRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, false, append(nodeObjects(3), lb("web"))...)
		first := w.recorder.eventLines(record.KindMembership, "address", "port", "protocol", "nodes", "all", "policy", "seed")
		if len(first) != 4 { // the order of the three results is not fixed
			t.Fatalf("the first tables are %q", first)
		}
		w.expect("the first checks run at once, and nodes start down", []string{
			"0 203.0.113.10 80 tcp  node-1,node-2,node-3 sticky 7",
			"0 203.0.113.10 80 tcp node-1,node-2,node-3 node-1,node-2,node-3 sticky 7"}, []string{first[0], first[3]})
		w.recorder.reset()
		w.make("10.0.0.12", 503)
		w.until(59 * time.Second)
		// node-2 has the phase 1.25 s of 5 s; its check at 1.25 s is nearer than half an interval to the first one.
		w.expect("checks", []string{"6250 fail 503 healthCheckNodePort 1", "16250 fail 503 healthCheckNodePort 3"},
			w.recorder.eventLines(record.KindHealthCheck, "result", "status", "target", "count"))
		w.expect("tables", []string{"16250 node-1,node-3 16250000000"}, w.recorder.eventLines(record.KindMembership, "nodes", "fromNs"))
		if got := names(w.path.tables["default/web"].nodes); got != "node-1,node-3" {
			t.Errorf("packets go to %s", got)
		}
		w.recorder.reset()
		w.make("10.0.0.12", 200)
		w.until(70 * time.Second)
		w.expect("tables", []string{"61250 node-1,node-2,node-3"}, w.recorder.eventLines(record.KindMembership, "nodes"))
	})
}

func TestServicesGetAddressesInOrderOfCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		born := func(second int64) func(*corev1.Service) {
			return func(s *corev1.Service) { s.CreationTimestamp = metav1.Unix(second, 0) }
		}
		held := func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.11"}}
		}
		w := start(t, false, append(nodeObjects(1), lb("b", born(5)), lb("a", born(9)), lb("c", born(5)), lb("kept", born(10), held))...)
		for name, want := range map[string]string{"kept": "203.0.113.11", "b": "203.0.113.10", "c": "203.0.113.12", "a": "203.0.113.13"} {
			if got := w.path.tables["default/"+name].addr.String(); got != want {
				t.Errorf("%s is served at %s, want %s", name, got, want)
			}
			if name == "kept" {
				continue // its status is not written
			}
			if got := w.address(name); got != want {
				t.Errorf("%s has %s, want %s", name, got, want)
			}
		}
		w.remove("b")
		w.create(lb("d"))
		w.create(lb("wish", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.10" }))
		w.create(lb("same", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.10" }))
		for name, want := range map[string]string{"d": "203.0.113.14", "wish": "203.0.113.10", "same": ""} {
			if got := w.address(name); got != want {
				t.Errorf("%s has %q, want %q", name, got, want)
			}
		}
		w.remove("wish") // "same" was waiting for this address
		if got := w.address("same"); got != "203.0.113.10" {
			t.Errorf("same has %q, want the address that was given back", got)
		}
	})
}

func TestIgnoredServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class, now := "example.com/other", metav1.Now()
		w := start(t, false, append(nodeObjects(1), lb("web"),
			lb("inner", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }),
			lb("other", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }),
			lb("six", func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }),
			lb("dying", func(s *corev1.Service) { s.DeletionTimestamp, s.Finalizers = &now, []string{"x/y"} }))...)
		for _, name := range []string{"inner", "other", "six", "dying"} {
			if got := w.address(name); got != "" {
				t.Errorf("%s was given %s", name, got)
			}
		}
		w.recorder.reset()
		svc, _ := w.client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		svc = svc.DeepCopy()
		svc.Spec.Type = corev1.ServiceTypeClusterIP
		w.update(svc)
		if got := w.address("web"); got != "" || len(w.path.tables) != 0 {
			t.Errorf("a Service that is no longer of type LoadBalancer has %q, tables %v", got, w.path.tables)
		}
		w.expect("the withdrawal", []string{"100 203.0.113.10 80  "}, w.recorder.eventLines(record.KindMembership, "address", "port", "nodes", "all"))
		w.until(time.Minute)
		if got := w.recorder.eventLines(record.KindHealthCheck, "result"); len(got) != 0 {
			t.Errorf("health checks continue after the withdrawal: %v", got)
		}
	})
}

func TestChangesOfPortsHealthChecksAndNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, false, append(nodeObjects(2), lb("web"))...)
		svc := lb("web")
		svc.Spec.Ports = append(svc.Spec.Ports[:0:0], corev1.ServicePort{Port: 443, NodePort: 30443, Protocol: "TCP"})
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
		w.recorder.reset()
		w.update(svc)
		w.expect("changed port", []string{"100 80  ", "100 443 node-1,node-2 node-1,node-2"}, w.recorder.eventLines(record.KindMembership, "port", "nodes", "all"))

		w.recorder.reset()
		w.make("10.0.0.11", -1)
		local := svc.DeepCopy()
		svc = svc.DeepCopy()
		svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = "Cluster", 0
		w.update(svc)
		w.expect("a changed health check keeps the state", nil, w.recorder.eventLines(record.KindMembership, "nodes"))
		w.expect("a changed health check runs at once", []string{"100 fail refused healthz 1", "100 pass 200 healthz 1"},
			sorted(w.recorder.eventLines(record.KindHealthCheck, "result", "status", "target", "count")))
		w.update(local)

		w.recorder.reset()
		nodes := w.client.CoreV1().Nodes()
		for name, change := range map[string]func(*corev1.Node){
			"node-1": func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} },
			"node-2": func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: "NoSchedule"}}
			},
		} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			change(n)
			if _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		got := w.recorder.eventLines(record.KindMembership, "nodes", "all")
		if len(got) != 1 || !strings.HasSuffix(got[0], " node-2") {
			t.Errorf("got %q: the excluded node must be removed, the tainted one stays until its health checks fail (KEP-3836)", got)
		}
	})
}

func sorted(lines []string) []string { slices.Sort(lines); return lines }

func TestFailedStatusWritesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, false, nodeObjects(1)...)
		failures := 3
		w.client.PrependReactor("patch", "services", func(k8stesting.Action) (bool, runtime.Object, error) {
			if failures--; failures >= 0 {
				return true, nil, errors.New("no leader")
			}
			return false, nil, nil
		})
		w.create(lb("web"))
		if len(w.path.tables) != 1 {
			t.Error("forwarding must not wait for the status write")
		}
		w.until(4 * time.Second)
		if got := w.address("web"); got != "203.0.113.10" {
			t.Errorf("the address is %q after 3 failed writes", got)
		}
	})
}

func TestForwarderErrorEndsTheBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, false, nodeObjects(1)...)
		w.path.refuses = errors.New("the kernel says no")
		w.create(lb("web"))
		if err := w.stop(); !errors.Is(err, w.path.refuses) || !w.path.closed {
			t.Errorf("Run returned %v; forwarder closed: %t", err, w.path.closed)
		}
		if got := w.recorder.eventLines(record.KindMembership); len(got) != 0 {
			t.Errorf("a table that the forwarder rejected was recorded: %v", got)
		}
	})
}

func TestForwarderWithOwnHealthChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, true, append(nodeObjects(2), lb("web", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 443, NodePort: 30443})
		}))...)
		w.expect("every node starts up", []string{"0 80 node-1,node-2 roundrobin ", "0 443 node-1,node-2 roundrobin "},
			w.recorder.eventLines(record.KindMembership, "port", "nodes", "policy", "seed"))
		w.recorder.reset()
		say := func(pass, up bool) {
			w.b.post(func() error {
				return w.b.serverChanged(serverCheck{frontend: frontend{"default/web", record.IPv4}, node: "node-2", port: 443, up: up,
					checkResult: checkResult{at: w.now(), pass: pass, status: "503"}, from: w.now() - time.Millisecond})
			})
			synctest.Wait()
		}
		say(true, true)
		say(false, true)
		say(false, true)
		say(false, false)
		w.expect("results", []string{"100 pass 1", "100 fail 1", "100 fail 3"}, w.recorder.eventLines(record.KindHealthCheck, "result", "count"))
		w.expect("tables", []string{"100 443 node-1 99000000"}, w.recorder.eventLines(record.KindMembership, "port", "nodes", "fromNs"))
		w.recorder.reset()
		w.update(lb("web", func(s *corev1.Service) { s.Spec.HealthCheckNodePort++ }))
		w.expect("a reload resets health", []string{"100 443   true", "100 80 node-1,node-2 node-1,node-2 true"},
			w.recorder.eventLines(record.KindMembership, "port", "nodes", "all", "reloaded"))
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestInvalidConfigurations(t *testing.T) {
	good := func() Config {
		return Config{Net: topology.Planned(3, record.IPv4), Client: fake.NewClientset(), Recorder: &fakeRecorder{}, Now: func() time.Duration { return 0 }}
	}
	for problem, change := range map[string]func(*Config){
		`kind "nginx" is not known; give one of passthrough, haproxy`: func(c *Config) { c.Kind = "nginx" },
		`check target "node" is not known; give one of auto, healthz`: func(c *Config) { c.CheckTarget = "node" },
		`flows "hash" is not known; give one of sticky, rehash`:       func(c *Config) { c.Flows = "hash" },
		`fall -1`:               func(c *Config) { c.Fall = -1 },
		`are required`:          func(c *Config) { c.Now = nil },
		`requires Config.Procs`: func(c *Config) { c.Kind = KindHAProxy },
		"every 1ns, fall 3":     func(c *Config) { c.Interval = 1 },
	} {
		c := good()
		change(&c)
		if _, err := c.withDefaults(); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("error %v, want one with %q", err, problem)
		}
	}
	if c, err := good().withDefaults(); err != nil || c.Seed == 0 || c.Interval != 5*time.Second || c.Fall != 3 || c.Rise != 1 {
		t.Errorf("the defaults are %+v, %v", c, err)
	}
}

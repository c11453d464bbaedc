package site

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Invalid fleet options are refused with advice.
func TestInvalidFleetIsRefusedWithAdvice(t *testing.T) {
	for want, f := range map[string]FleetOptions{
		"--fleet-image":          {Workers: 20},
		"either a number":        {Workers: 20, Everywhere: true, Image: "hitless"},
		"--fleet N":              {OnHost: true},
		"at most 1000":           {Workers: 1001, Image: "hitless"},
		"up to 1000 attempts":    {Workers: 1, Image: "hitless", Rate: -1},
		"there is no fleet with": {Image: "hitless"},
	} {
		_, err := newCluster(Call{Scenario: "rollout"}, LiveOptions{Kubeconfig: "x", Fleet: &f})
		if !isUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a usage error with %q", f, err, want)
		}
	}
	crowd := FleetOptions{Workers: 4, OnHost: true}
	if err := crowd.fits(3); !isUsage(err) || !strings.Contains(err.Error(), "3 nodes") || crowd.fits(4) != nil {
		t.Errorf("%v, want an error that four do not fit on three nodes", err)
	}
	r, err := newCluster(Call{Scenario: "rollout"}, LiveOptions{Kubeconfig: "x", Fleet: &FleetOptions{Everywhere: true, OnHost: true, Image: "hitless"}})
	if err != nil {
		t.Fatal(err)
	}
	if said := r.live.Fleet.touches(7); !strings.Contains(said, "on 7 nodes") || !strings.Contains(said, "privileged") || !strings.Contains(said, "70 in all, of which the conntrack tables of the nodes with its pods hold up to 8400") || !strings.Contains(r.command(), "--fleet-everywhere --fleet-on-host --fleet-rate 10 --fleet-image hitless") {
		t.Errorf("the fleet touches %q, with command %q", said, r.command())
	}
}

// kept stores the recorded events.
type kept struct{ events []record.Event }

func (k *kept) Event(e record.Event)   { k.events = append(k.events, e) }
func (k *kept) Attempt(record.Attempt) {}

// The end of a worker's pod is a log event, so that it cannot be the cause of an outage.
func TestFleetPodsAreNoCauses(t *testing.T) {
	var k kept
	for _, name := range []string{"web-1", "fleet-1"} {
		fleetPodFilter{&k}.Event(record.Event{Node: "node-1", Object: name, Text: name + " is terminating",
			Body: record.Pod{State: record.PodTerminating, Pod: name}})
	}
	if len(k.events) != 2 || k.events[0].Kind() != record.KindPod || k.events[1].Kind() != record.KindLog {
		t.Errorf("%+v", k.events)
	}
}

// noLanes counts lanes without starting them.
type noLanes struct{ started int }

func (n *noLanes) Failures() int { return 0 }

func (n *noLanes) StartLane(context.Context, scenarios.LaneSpec) (func() error, error) {
	n.started++
	return func() error { return nil }, nil
}

// Without a fleet, lanes start as usual, and nothing is collected.
func TestRunWithoutFleet(t *testing.T) {
	var n noLanes
	var k kept
	p := &fleetProber{Prober: &n, site: &Cluster{live: LiveOptions{Fleet: &FleetOptions{}}}, record: &k, now: func() time.Duration { return 0 }}
	if _, err := p.StartLane(t.Context(), scenarios.LaneSpec{Name: "tcp-new"}); err != nil || n.started != 1 {
		t.Errorf("%v, started %d", err, n.started)
	}
	if p.end(t.Context(), nil); p.collector != nil || len(k.events) > 0 {
		t.Errorf("a fleet was started, or left %+v in the record", k.events)
	}
}

// recorded stores events and attempts. It is safe for concurrent use.
type recorded struct {
	mu sync.Mutex
	kept
	attempts map[uint16]int
}

func (r *recorded) Event(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Event(e)
}

func (r *recorded) Attempt(a record.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[a.Lane]++
}

func (r *recorded) count(kind record.Kind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Kind() == kind {
			n++
		}
	}
	return n
}

// podsOf simulates the kubelet: it starts the workers of the fleet's Deployment, and receives the requests that the API server forwards.
type podsOf struct {
	t       *testing.T
	server  *replay.Server
	ctx     context.Context
	mu      sync.Mutex
	workers map[string]string // address of each pod
}

func (p *podsOf) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, rest, is := strings.Cut(r.URL.Path, "/pods/http:"); is {
			name, path, _ := strings.Cut(rest, ":7707/proxy")
			p.mu.Lock()
			address, there := p.workers[name]
			p.mu.Unlock()
			if !there {
				http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
				return
			}
			r.URL.Path = path
			httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address}).ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments") {
			p.start()
		}
	})
}

// start starts two workers with the environment of the Deployment.
func (p *podsOf) start() {
	api := httptest.NewServer(p.server.Handler())
	defer api.Close()
	c, err := cluster.New(&rest.Config{Host: api.URL})
	if err != nil {
		p.t.Error(err)
		return
	}
	d, err := c.Client.AppsV1().Deployments("run").Get(p.ctx, cluster.FleetName, metav1.GetOptions{})
	if err != nil {
		p.t.Error(err)
		return
	}
	var lane probes.Lane
	if err := json.Unmarshal([]byte(d.Spec.Template.Spec.Containers[0].Env[0].Value), &lane); err != nil {
		p.t.Error(err)
	}
	for i := range *d.Spec.Replicas {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.t.Error(err)
			return
		}
		go func() { _ = fleet.Serve(p.ctx, listener, lane) }() // ends with the test
		name := fmt.Sprintf("fleet-%d", i)
		p.mu.Lock()
		p.workers[name] = listener.Addr().String()
		p.mu.Unlock()
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: corev1.PodSpec{NodeName: "worker-1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "run", Labels: d.Spec.Template.Labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if _, err := p.server.Apply(pod); err != nil {
			p.t.Error(err)
		}
	}
}

// A run's fleet is a Deployment, its target is the Service, and its records come through the API server. A deleted pod gives a missing
// record.
func TestFleetIsCollectedThroughAPI(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "web-1") }))
	defer backend.Close()
	_, port, _ := net.SplitHostPort(backend.Listener.Addr().String())
	number, _ := strconv.Atoi(port)
	server := replay.New()
	if _, err := server.Apply(&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "run"},
		Spec: corev1.ServiceSpec{ClusterIP: "127.0.0.1", Ports: []corev1.ServicePort{{Port: int32(number)}}}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pods := &podsOf{t: t, server: server, ctx: ctx, workers: map[string]string{}}
	api := httptest.NewServer(pods.wrap(server.Handler()))
	defer api.Close()
	c, err := cluster.New(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	recorder := &recorded{attempts: map[uint16]int{}}
	begin := time.Now()
	run := &Cluster{namespace: "run", cluster: c, live: LiveOptions{Patience: time.Minute,
		Fleet: &FleetOptions{Workers: 2, Image: "hitless", Rate: 20}}}
	p := &fleetProber{Prober: &noLanes{}, site: run, record: recorder, now: func() time.Duration { return time.Since(begin) }}
	for _, l := range []scenarios.LaneSpec{{Name: "canary", Control: true}, {Name: "tcp-new", Service: "web", Backends: []string{"web-"}, Host: "web"}} {
		if _, err := p.StartLane(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if l.Control && p.collector != nil {
			t.Error("the fleet started with the canary lane")
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		recorder.mu.Lock()
		first, second := recorder.attempts[fleetLane], recorder.attempts[fleetLane+1]
		recorder.mu.Unlock()
		if first > 0 && second > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d and %d attempts were collected", first, second)
		}
	}
	pods.mu.Lock()
	delete(pods.workers, "fleet-1")
	pods.mu.Unlock()
	p.end(t.Context(), nil)
	if recorder.count(record.KindLane) != 2 || recorder.count(record.KindMissingRecord) != 1 || recorder.count(record.KindClockBound) < 2 || recorder.count(record.KindStep) != 2 {
		t.Errorf("%+v\nwant two lanes, their clocks, a step, and the missing record of the deleted pod", recorder.events)
	}
	for _, e := range recorder.events {
		if l, is := e.Body.(record.Lane); is && (l.Service != "web" || l.Local || l.Node != "worker-1" || l.Target != "127.0.0.1:"+port) {
			t.Errorf("declared %+v", l)
		}
		if e.Kind() == record.KindMissingRecord && (e.Object != "fleet-1" || !strings.Contains(e.Text, "the worker is gone")) {
			t.Errorf("the missing record is %+v", e)
		}
	}
}

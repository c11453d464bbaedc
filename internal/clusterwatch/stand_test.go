package clusterwatch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
)

// patience is the timeout of waits for what takes moments.
const patience = time.Minute

// stand is a cluster of the replay control plane. Listeners on loopback addresses are the external addresses of its Services.
type stand struct {
	t       *testing.T
	server  *replay.Server
	config  string // kubeconfig
	away    atomic.Bool
	revoked atomic.Int32 // the status of each answer about Services; 0 for the usual ones
	api     *httptest.Server

	mu    sync.Mutex
	asked map[string]bool // the verbs of all requests
}

// newStand starts a cluster for a user who lacks these verbs.
func newStand(t *testing.T, lacks ...string) *stand {
	t.Helper()
	s := &stand{t: t, server: replay.New(), asked: map[string]bool{}}
	handler := replaytest.Withhold(lacks...)(s.server.Handler())
	s.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(r)
		switch {
		case s.away.Load():
			panic(http.ErrAbortHandler) // the connection ends without an answer
		case s.revoked.Load() != 0 && strings.HasSuffix(r.URL.Path, "/services"):
			http.Error(w, "no longer", int(s.revoked.Load()))
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { s.api.CloseClientConnections(); s.api.Close() })
	s.config = replaytest.Kubeconfig(t, s.api.URL)
	return s
}

// note keeps the verb of a request.
func (s *stand) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[replaytest.Verb(r)] = true
}

// servicePort is the port of all Services.
const servicePort = 18080

// backend accepts connections on an address, until it is closed.
type backend struct {
	address string
	l       net.Listener
}

func listen(t *testing.T, address string) *backend {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(servicePort)))
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{address, l}
	t.Cleanup(b.close)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	}()
	return b
}

func (b *backend) close() { _ = b.l.Close() }

// service applies a Service with external IPs.
func (s *stand) service(name string, labels map[string]string, addresses ...string) {
	s.t.Helper()
	s.apply(&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: labels},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ExternalIPs: addresses, Ports: []corev1.ServicePort{{Name: "web", Port: servicePort, Protocol: corev1.ProtocolTCP},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}}})
}

// balanced applies a Service whose load balancer has a name.
func (s *stand) balanced(name, host string) {
	s.t.Helper()
	s.apply(&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: servicePort}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: host}}}}})
}

type applied interface {
	metav1.Object
	runtime.Object
}

// endpoint applies the one endpoint of a Service, in a state.
func (s *stand) endpoint(service string, ready bool) {
	s.t.Helper()
	node := "worker-1"
	s.apply(&discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-1", Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: service + "-pod"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}}}})
}

func (s *stand) apply(o applied) {
	s.t.Helper()
	if _, err := s.server.Apply(o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) remove(kind, name string) {
	s.t.Helper()
	if err := s.server.Delete(replay.Ref{Kind: kind, Namespace: "shop", Name: name}, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// options are those of a watch of the stand.
func (s *stand) options() Options {
	o := Options{Kubeconfig: s.config}
	o.Protocol, o.Rate, o.Out, o.Command = probes.ProtocolTCPDial, 20, filepath.Join(s.t.TempDir(), "out"), "hitless watch start"
	return o
}

// running is a watch in this process.
type running struct {
	t      *testing.T
	o      Options
	stop   context.CancelFunc
	done   chan struct{}
	result *session.Result
	err    error

	mu   sync.Mutex
	said []string
	ok   int
}

// start starts a watch, and returns when the cluster may be changed, or when it has ended.
func (s *stand) start(o Options) *running {
	s.t.Helper()
	r := &running{t: s.t, done: make(chan struct{})}
	measuring := make(chan struct{})
	o.Progress = func(text string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, text)
	}
	o.OnMeasuring = func() { close(measuring) }
	o.OnSecond = func(second session.Second) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ok += second.Classes[record.OK]
	}
	r.o = o
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.done)
		r.result, r.err = Run(ctx, o)
	}()
	s.t.Cleanup(func() { stop(); <-r.done })
	select {
	case <-measuring:
	case <-r.done:
	}
	return r
}

// goesOn waits until so many more attempts are good.
func (r *running) goesOn(more int) {
	r.t.Helper()
	r.mu.Lock()
	from := r.ok
	r.mu.Unlock()
	r.until("more good attempts", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.ok >= from+more })
}

// attempted waits until the record has an attempt of a lane.
func (r *running) attempted(name string) {
	r.t.Helper()
	r.until("an attempt of lane "+name, func() bool {
		h, err := record.OpenUnsealed(filepath.Join(r.o.Out, "unfinished", record.HistoryDir))
		if err != nil {
			return false
		}
		ids := map[uint16]bool{}
		for e := range h.Events() {
			if l, is := e.Body.(record.Lane); is && l.Name == name {
				ids[l.ID] = true
			}
		}
		for a, err := range h.Attempts() {
			if err == nil && ids[a.Lane] {
				return true
			}
		}
		return false
	})
}

// recorded waits until the record has an event whose text has these words.
func (r *running) recorded(words string) {
	r.t.Helper()
	r.until("the event "+words, func() bool {
		data, err := os.ReadFile(filepath.Join(r.o.Out, "unfinished", record.HistoryDir, record.EventsFile))
		return err == nil && strings.Contains(string(data), words)
	})
}

func (r *running) until(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		select {
		case <-r.done:
			r.t.Fatalf("the watch ended while the test waited for %s: %v", what, r.err)
		default:
		}
		if time.Now().After(end) {
			r.t.Fatalf("after %v there is still not %s", patience, what)
		}
	}
}

// report ends the watch and returns its report. It skips the test when nothing but a busy machine made the watch invalid.
func (r *running) report(want analysis.Verdict) *analysis.Report {
	r.t.Helper()
	r.stop()
	<-r.done
	if r.err != nil {
		r.t.Fatal(r.err)
	}
	report := r.result.Report
	r.totals()
	gap := func(reason string) bool { return r.o.Resume && strings.HasPrefix(reason, "a gap in the record of ") } // beside each verdict
	if report.Verdict == analysis.Invalid && testfiles.OnlyLate(slices.DeleteFunc(slices.Clone(report.Reasons), gap)) {
		r.t.Skipf("the machine is too busy to measure: %q", report.Reasons)
	}
	if report.Verdict != want {
		r.t.Errorf("verdict %s, want %s: %q", report.Verdict, want, report.Reasons)
	}
	return report
}

// history is the record of the watch, which has ended.
func (r *running) history() *record.History {
	r.t.Helper()
	h, err := record.OpenHistory(r.result.Dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// totals compares the totals of the report with the record: each attempt of a measured lane counts once.
func (r *running) totals() {
	r.t.Helper()
	h := r.history()
	measured, count := map[uint16]bool{}, map[string]int{}
	for e, err := range h.Events() {
		if err != nil {
			r.t.Fatal(err)
		}
		if l, is := e.Body.(record.Lane); is && !l.Control {
			measured[l.ID] = true
		}
	}
	for e, err := range h.Entries() {
		switch {
		case err != nil:
			r.t.Fatal(err)
		case e.Bucket != nil && measured[e.Bucket.Lane]:
			count[record.OK.String()] += e.Bucket.Attempts()
		case e.Bucket == nil && measured[e.Lane]:
			count[e.Class.String()]++
		}
	}
	for class, n := range r.result.Report.Totals.ByClass {
		if n != count[class] {
			r.t.Errorf("the report has %d attempts of %s, the record %d", n, class, count[class])
		}
	}
}

// excusedToTheEnd expects an excuse for each lane that ended, beyond its end: the probes obey later.
func (r *running) excusedToTheEnd() {
	r.t.Helper()
	h := r.history()
	ends, until := map[uint16]time.Duration{}, map[uint16]time.Duration{}
	for e, err := range h.Events() {
		if err != nil {
			r.t.Fatal(err)
		}
		switch body := e.Body.(type) {
		case record.LaneEnd:
			ends[body.Lane] = e.At
		case record.Excuse:
			until[body.Lane] = body.Until
		}
	}
	if len(ends) == 0 {
		r.t.Error("no lane ended")
	}
	for lane, end := range ends {
		if until[lane] <= end {
			r.t.Errorf("lane %d ended at %v, and is excused until %v", lane, end, until[lane])
		}
	}
}

// lanesOf returns the measured lanes of a report by their names.
func lanesOf(r *analysis.Report) map[string]analysis.LaneReport {
	all := map[string]analysis.LaneReport{}
	for _, l := range r.Lanes {
		all[l.Name] = l
	}
	return all
}

func refOf(kind, name string) replay.Ref { return replay.Ref{Kind: kind, Name: name} }

var proxyLabels = map[string]string{"k8s-app": "kube-proxy"}

// proxySet applies the proxy's DaemonSet.
func (s *stand) proxySet() {
	s.t.Helper()
	s.apply(&appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: proxyLabels}}})
}

// proxyPod applies a pod of the proxy.
func (s *stand) proxyPod(name, node string) {
	s.t.Helper()
	s.apply(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Labels: proxyLabels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "kube-proxy", Image: "kube-proxy"}}}})
}

// loses waits until so much time has passed, in which a target of the stand fails.
func (r *running) loses(length time.Duration) {
	r.t.Helper()
	begin := time.Now()
	r.until("the end of a loss", func() bool { return time.Since(begin) > length }) // the tested length
}

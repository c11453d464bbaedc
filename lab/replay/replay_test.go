package replay_test

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/lab/replay"
)

const patience = 20 * time.Second

// tb is the common interface of *testing.T and *rapid.T.
type tb interface {
	rapid.TB
	Cleanup(func())
	Context() context.Context
}

// TestMain keeps client-go's reflectors from logging each watch that a test cuts, and each answer that does not come.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	if err := flags.Set("stderrthreshold", "FATAL"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// lab is a server on a loopback port with its clients.
type lab struct {
	*replay.Server
	url string
	end func() // ends the context of Serve
}

// start serves s, or a new server, until the test ends; timestamps are fixed.
func start(t tb, s *replay.Server) lab {
	t.Helper()
	if s == nil {
		s = replay.New()
	}
	s.Now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v after its context ended, want nil", err)
		}
	})
	return lab{s, "http://" + listener.Addr().String(), cancel}
}

func (l lab) config() *rest.Config {
	return &rest.Config{Host: l.url, QPS: -1, UserAgent: "replay-test/1"}
}

func (l lab) client(t tb, change ...func(*rest.Config)) kubernetes.Interface {
	t.Helper()
	config := l.config()
	for _, c := range change {
		c(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func protobuf(c *rest.Config) { c.ContentType = runtime.ContentTypeProtobuf }
func plainJSON(c *rest.Config) {
	c.ContentType = "application/json"
	c.AcceptContentTypes = "application/json"
}

// curl sends a request and returns the status code, the content type and the body.
func (l lab) curl(t tb, method, path, accept, contentType, body string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, l.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get("Content-Type"), string(data)
}

func (l lab) apply(t tb, obj runtime.Object) {
	t.Helper()
	if _, err := l.Apply(obj); err != nil {
		t.Fatal(err)
	}
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels}}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "agnhost"}}},
	}
}

func slice(name, service, node string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node})
	}
	return s
}

// closed waits for the end of a watch, which must come without a further event.
func closed(t tb, w apiwatch.Interface) {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		if open {
			t.Fatalf("event %s %v, want the end of the watch", e.Type, e.Object)
		}
	case <-time.After(patience):
		t.Fatalf("the watch still runs after %s", patience)
	}
}

// line formats an event: type, name and version.
func line(t tb, e apiwatch.Event) string {
	t.Helper()
	m, ok := e.Object.(metav1.Object)
	if !ok {
		t.Fatalf("event %s carries %T: %v", e.Type, e.Object, e.Object)
	}
	return string(e.Type) + " " + m.GetName() + " " + m.GetResourceVersion()
}

// eventually waits until cond holds.
func eventually(t tb, what string, cond func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 2*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return cond(), nil })
	if err != nil {
		t.Fatalf("after %s still not: %s", patience, what)
	}
}

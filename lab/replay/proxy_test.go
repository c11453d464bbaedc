package replay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// pods/proxy forwards path and query; a missing pod and one that does not respond get different errors.
func TestPodProxy(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.URL.String())
	}))
	defer pod.Close()
	s := New()
	s.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "10.0.0.7:7707" {
			return nil, errors.New("no route to " + address)
		}
		return new(net.Dialer).DialContext(ctx, network, pod.Listener.Addr().String())
	}
	for name, address := range map[string]string{"here": "10.0.0.7", "away": "10.0.0.8", "new": ""} {
		if _, err := s.Apply(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "run"},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Ports: []corev1.ContainerPort{{ContainerPort: 7707}}}}},
			Status: corev1.PodStatus{PodIP: address}}); err != nil {
			t.Fatal(err)
		}
	}
	api := httptest.NewServer(s.Handler())
	defer api.Close()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: api.URL})
	ask := func(name string) (string, int) {
		answer, err := http.Get(api.URL + "/api/v1/namespaces/run/pods/" + name + "/proxy/records/status/x?dryRun=1&from=7")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body), answer.StatusCode
	}
	for _, name := range []string{"http:here:7707", "here:7707", "here"} {
		if body, code := ask(name); body != "/records/status/x?dryRun=1&from=7" || code != http.StatusTeapot {
			t.Errorf("%s: %d %q, want the pod's own answer", name, code, body)
		}
	}
	for name, want := range map[string]int{"away": 503, "here:1": 503, "nobody": 404, "new": 400, "https:here:7707": 400} {
		if body, code := ask(name); code != want {
			t.Errorf("%s: %d %s, want %d", name, code, body, want)
		}
	}
	if err := client.CoreV1().RESTClient().Post().Namespace("run").Resource("pods").SubResource("proxy").Name("here").Do(t.Context()).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("%v, want that only GET is known", err)
	}
}

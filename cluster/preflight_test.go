package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// answering is a cluster whose API server has these answers, by their paths.
func answering(t *testing.T, answers map[string]any) *Cluster {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !known {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(api.Close)
	c, err := New(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The mode of kube-proxy is read from each of the places that it may be in, or the reason says what was wrong there.
func TestModeOfKubeProxy(t *testing.T) {
	for name, test := range map[string]struct {
		data    map[string]string
		mode    string
		unknown string // a part of the reason
	}{
		"of kubeadm": {map[string]string{"config.conf": "mode: ipvs"}, "ipvs", ""},
		"of GKE":     {map[string]string{"config": "kind: KubeProxyConfiguration"}, "iptables", ""},
		"elsewhere":  {map[string]string{"kubeconfig.conf": ""}, "", "config.conf"},
		"broken":     {map[string]string{"config.conf": "mode: [ipvs"}, "", "yaml"},
	} {
		c := answering(t, map[string]any{"/api/v1/namespaces/kube-system/configmaps/kube-proxy": &corev1.ConfigMap{Data: test.data}})
		_, mode, unknown := c.proxy(t.Context())
		if mode != test.mode || (unknown == "") != (test.unknown == "") || !strings.Contains(unknown, test.unknown) || strings.Contains(unknown, "nil") {
			t.Errorf("%s: mode %q, unknown because %q", name, mode, unknown)
		}
	}
}

package cluster

import (
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/lab/replay"
)

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
		plane := replay.New()
		if _, err := plane.Apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Data: test.data}); err != nil {
			t.Fatal(err)
		}
		api := httptest.NewServer(plane.Handler())
		defer api.Close()
		c, err := New(&rest.Config{Host: api.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, mode, unknown := c.proxy(t.Context())
		if mode != test.mode || (unknown == "") != (test.unknown == "") || !strings.Contains(unknown, test.unknown) || strings.Contains(unknown, "nil") {
			t.Errorf("%s: mode %q, unknown because %q", name, mode, unknown)
		}
	}
}

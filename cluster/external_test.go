package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExternals(t *testing.T) {
	ports := []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}, {Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP}, {Port: 443}}
	nodes := []Node{{Name: "n2", Addresses: []string{"192.0.2.2"}}, {Name: "n1", Addresses: []string{"192.0.2.1", "10.0.0.1"}}, {Name: "n3"}}
	for name, c := range map[string]struct {
		ingress  []corev1.LoadBalancerIngress
		ips      []string
		nodes    []Node
		want     []string
		unprobed []string
	}{
		"only a cluster IP": {},
		"a load balancer": {ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}, want: []string{"shop/web:80 at 203.0.113.7", "shop/web:443 at 203.0.113.7"},
			unprobed: []string{"shop/web:53/UDP"}},
		"names and external IPs, each once": {ingress: []corev1.LoadBalancerIngress{{Hostname: "lb.example"}, {}, {IP: "203.0.113.7"}}, ips: []string{"203.0.113.7"},
			want: []string{"shop/web:80 at 203.0.113.7", "shop/web:80 at lb.example", "shop/web:443 at 203.0.113.7", "shop/web:443 at lb.example"}, unprobed: []string{"shop/web:53/UDP"}},
		"node ports": {ips: []string{"203.0.113.7"}, nodes: nodes, want: []string{"shop/web:80 at 192.0.2.1:30080", "shop/web:80 at 192.0.2.2:30080"}, unprobed: []string{"shop/web:53/UDP"}},
		"no nodes":   {ips: []string{"203.0.113.7"}, nodes: []Node{}},
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Ports: ports, ExternalIPs: c.ips},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: c.ingress}}}
		found, unprobed := Externals(s, c.nodes)
		var got []string
		for _, e := range found {
			got = append(got, e.String())
			if (e.Node == "") != (c.nodes == nil) {
				t.Errorf("%s: %+v has the wrong node", name, e)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if diff := cmp.Diff(c.unprobed, unprobed); diff != "" {
			t.Errorf("%s: unprobed\n%s", name, diff)
		}
	}
}

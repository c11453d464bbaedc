//go:build linux

package guest

import (
	"net/netip"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/scenarios"
)

// The lanes go to what the control plane has given the Service, whatever that is, and those of UDP to their own port.
func TestLanesGoToTheirTarget(t *testing.T) {
	for target, check := range map[string]func(s *corev1.Service, tcp, udp string) bool{
		"loadBalancer": func(_ *corev1.Service, tcp, udp string) bool { return tcp == "203.0.113.10:80" && udp == tcp },
		"externalIP":   func(_ *corev1.Service, tcp, udp string) bool { return tcp == "192.0.2.1:80" && udp == tcp },
		"clusterIP":    func(s *corev1.Service, tcp, udp string) bool { return tcp == s.Spec.ClusterIP+":80" && udp == tcp },
		"nodePort": func(s *corev1.Service, tcp, udp string) bool {
			return tcp == at("10.0.0.11", s.Spec.Ports[0].NodePort) && udp == at("10.0.0.11", s.Spec.Ports[1].NodePort) && tcp != udp
		},
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set := map[string]string{"target": target, "trafficPolicy": "Cluster", "lanes": "tcp-new,udp-fresh"}
				if target == "clusterIP" {
					set["client"] = "node"
				}
				s := newStage(t, "quiet", set)
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
					Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.11"}}}}
				if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				scenario := find(t, "quiet")
				if err := scenarios.Run(t.Context(), scenario, &s.world); err != nil {
					t.Fatal(err)
				}
				service, err := s.client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				targets := map[string]string{}
				for _, l := range s.lanes {
					targets[l.Name] = l.Target
				}
				if !check(service, targets["tcp-new"], targets["udp-fresh"]) {
					t.Errorf("lanes to %v of a Service with %+v", targets, service.Spec)
				}
				if target != "loadBalancer" && targets["canary"] == targets["tcp-new"] {
					t.Errorf("the canary is asked at the address of the measured Service, %s", targets["canary"])
				}
			})
		})
	}
}

func at(host string, port int32) string {
	return netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port)).String()
}

package clusterwatch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
)

// node applies a node with an address.
func (s *stand) node(name, address string, ready bool) {
	s.t.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	s.apply(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}})
}

// Node ports have a lane for each node. A node that becomes unready is the cause of what its port loses, and of nothing else; the lanes
// follow nodes that appear and disappear.
func TestNodePortsAreMeasuredOnEachNode(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a, b, c := testfiles.Loopback(t), testfiles.Loopback(t), testfiles.Loopback(t)
	listen(t, a)
	l := listen(t, b)
	listen(t, c)
	s.node("worker-1", a, true)
	s.node("worker-2", b, true)
	s.apply(&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80, NodePort: servicePort}}}})
	o := s.options()
	o.NodePorts = true
	r := s.start(o)
	r.goesOn(20)
	s.node("worker-2", b, false)
	r.recorded("node worker-2 is not ready")
	l.close()
	r.goesOn(20)
	listen(t, b)
	s.node("worker-3", c, true)
	r.recorded("lane shop/web:80 at " + c + ":18080:")
	r.goesOn(30)
	if err := s.server.Delete(refOf("Node", "worker-3"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.recorded("lane shop/web:80 at " + c + ":18080 ends")
	r.goesOn(10)
	report := r.report(analysis.Fail)
	all := report.AllOutages()
	if len(all) != 1 || all[0].Node != "worker-2" || all[0].Cause.Event != "node unready" || !strings.Contains(all[0].Cause.Text, "worker-2") {
		t.Errorf("%+v, want one outage of worker-2 by its unreadiness", all)
	}
	if len(report.Lanes) != 3 {
		t.Errorf("%d lanes, want one for each node", len(report.Lanes))
	}
}

// The restart of a node's proxy explains what an external load balancer loses, also if it is unknown which node it chose.
func TestProxyIsACauseBehindAnUnknownLoadBalancer(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a := testfiles.Loopback(t)
	l := listen(t, a)
	s.service("web", nil, a)
	s.endpoint("web", true)
	s.proxySet()
	s.proxyPod("kube-proxy-1", "worker-1")
	r := s.start(s.options())
	r.recorded("the proxy's pod kube-proxy-1")
	r.recorded("shop/web-pod")
	r.goesOn(20)
	none := int64(0)
	ref := refOf("Pod", "kube-proxy-1")
	ref.Namespace = "kube-system"
	if err := s.server.Delete(ref, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	r.recorded("kube-proxy-1 on worker-1 is removed")
	l.close()
	r.loses(toldWithin)
	listen(t, a)
	r.goesOn(20)
	report := r.report(analysis.Fail)
	if all := report.AllOutages(); len(all) != 1 || all[0].Cause.Event != "proxy exited" {
		t.Errorf("%+v, want one outage by the proxy's exit", all)
	}
}

//go:build netns

package contract

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/suites/proxier/stage"
)

// The questions, by the feature that they are about. IPs of balancers end as the cluster IPs of their Services do, and so do NodePorts.
var questions = []question{
	{about: "cluster IP", from: "c", to: "10.96.0.1:80", want: "a b r", seen: "itself"},
	{about: "cluster IP, from the node", from: "node", to: "10.96.0.1:80", want: "a b r", seen: "node"},
	{about: "cluster IP, from outside: masqueraded", from: "client", to: "10.96.0.1:80", want: "a b r", seen: "node"},
	{about: "no port of the Service", from: "client", to: "10.96.0.1:81", want: "refused"},
	{about: "NodePort at the primary address", from: "client", to: nodeAddr + ":30001", want: "a b r", seen: "node"},
	{about: "NodePort at another address", from: "client", to: nodeSecond + ":30001", want: "refused"},
	{about: "balancer's address", from: "client", to: "203.0.113.1:80", want: "a b r", seen: "node"},
	{about: "balancer's address, from a pod", from: "c", to: "203.0.113.1:80", want: "a b r"},
	{about: "external IP", from: "client", to: "203.0.113.101:80", want: "a b r", seen: "node"},
	{about: "a pod's own Service", from: "a", to: "10.96.0.2:80", want: "a", seen: "node"},

	{about: "policy Local", from: "client", to: "203.0.113.3:80", want: "a", seen: "itself"},
	{about: "policy Local, NodePort", from: "client", to: nodeAddr + ":30003", want: "a", seen: "itself"},
	{about: "policy Local, cluster IP", from: "c", to: "10.96.0.3:80", want: "a r", seen: "itself"},
	{about: "policy Local, health", from: "client", to: "check!30103", want: "200, weight 1"},
	{about: "policy Local without a local endpoint", from: "client", to: "203.0.113.4:80", want: "dropped", ipvs: "r"},
	{about: "policy Local without a local endpoint, NodePort", from: "client", to: nodeAddr + ":30004", want: "dropped", ipvs: "r"},
	{about: "policy Local without a local endpoint, cluster IP", from: "c", to: "10.96.0.4:80", want: "r", seen: "itself"},
	{about: "policy Local without a local endpoint, health", from: "client", to: "check!30104", want: "503, weight 0"},
	{about: "policy Local without any endpoint", from: "client", to: "203.0.113.5:80", want: "refused"},
	{about: "policy Local without any endpoint, health", from: "client", to: "check!30105", want: "503, weight 0"},
	{about: "policy Local, the local one terminates and serves", from: "client", to: "203.0.113.6:80", want: "a", seen: "itself"},
	{about: "policy Local, the local one terminates and serves, health", from: "client", to: "check!30106", want: "503, weight 0"},
	{about: "policy Local, the local one serves no more", from: "client", to: "203.0.113.7:80", want: "dropped", ipvs: "r"},
	// IPVS cannot tell clients apart: see the page on the proxier.
	{about: "policy Local, from a pod", from: "c", to: "203.0.113.3:80", want: "a", nftables: "a r"},
	{about: "policy Local without a local endpoint, from a pod", from: "c", to: "203.0.113.4:80", want: "dropped", nftables: "r", ipvs: "r"},
	{about: "policy Local without a local endpoint, from the node", from: "node", to: "203.0.113.4:80", want: "dropped", nftables: "r", ipvs: "r"},

	{about: "internal policy Local", from: "c", to: "10.96.0.10:80", want: "a", seen: "itself"},
	{about: "internal policy Local, from the node", from: "node", to: "10.96.0.10:80", want: "a"},
	{about: "internal policy Local without a local endpoint", from: "c", to: "10.96.0.11:80", want: "dropped", ipvs: "refused"},
	{about: "internal policy Local, the local one terminates and serves", from: "c", to: "10.96.0.12:80", want: "a"},

	{about: "none ready, one terminates and serves", from: "c", to: "10.96.0.20:80", want: "a"},
	{about: "one ready, one terminates and serves", from: "c", to: "10.96.0.21:80", want: "a"},
	{about: "one unready", from: "c", to: "10.96.0.22:80", want: "refused"},
	{about: "one terminates and serves no more", from: "c", to: "10.96.0.23:80", want: "refused"},
	{about: "one ready, one unready", from: "c", to: "10.96.0.24:80", want: "a"},
	{about: "no endpoints", from: "c", to: "10.96.0.25:80", want: "refused"},
	{about: "no endpoints, from the node", from: "node", to: "10.96.0.25:80", want: "refused"},
	{about: "no endpoints, balancer's address", from: "client", to: "203.0.113.25:80", want: "refused"},
	{about: "no endpoints, NodePort", from: "client", to: nodeAddr + ":30025", want: "refused"},

	{about: "hints of zones", from: "c", to: "10.96.0.30:80", want: "a"},
	{about: "hints of zones, balancer's address", from: "client", to: "203.0.113.30:80", want: "a"},
	{about: "hints of zones, one without", from: "c", to: "10.96.0.31:80", want: "a b r"},
	{about: "hints of zones, none for this one", from: "c", to: "10.96.0.32:80", want: "a r"},
	{about: "hints of nodes", from: "c", to: "10.96.0.33:80", want: "a"},
	{about: "hints of nodes, none for this one: the zone's", from: "c", to: "10.96.0.34:80", want: "a"},
	{about: "hints of zones, ours not ready", from: "c", to: "10.96.0.35:80", want: "b"},

	{about: "affinity", from: "c", to: "10.96.0.40:80", want: "one", seen: "itself"},
	{about: "ranges of clients", from: "client", to: "203.0.113.41:80", want: "a r"},
	{about: "ranges of clients, outside of them", from: "stranger", to: "203.0.113.41:80", want: "dropped"},
	{about: "ranges of clients, NodePort", from: "stranger", to: nodeAddr + ":30041", want: "a r"},
	{about: "ranges of clients, cluster IP", from: "c", to: "10.96.0.41:80", want: "a r"},
	{about: "a balancer that is a proxy (KEP-1860)", from: "client", to: "203.0.113.42:80", want: "dropped"},
	{about: "a balancer that is a proxy, NodePort", from: "client", to: nodeAddr + ":30042", want: "a"},
	{about: "a Service of another proxy", from: "c", to: "10.96.0.43:80", want: "dropped"},
	{about: "scheduler of a Service", from: "c", to: "10.96.0.44:80", want: "one", nftables: "a b r", ipvs: "a b r"},

	{about: "UDP", from: "c", to: "udp!10.96.0.50:80", want: "a b", seen: "itself"},
	{about: "UDP, balancer's address", from: "client", to: "udp!203.0.113.50:80", want: "a b", seen: "node"},
	{about: "UDP, NodePort", from: "client", to: "udp!" + nodeAddr + ":30050", want: "a b", seen: "node"},
	{about: "SCTP", from: "c", to: "sctp!10.96.0.51:80", want: "a r", seen: "itself"},
	{about: "SCTP, balancer's address", from: "client", to: "sctp!203.0.113.51:80", want: "a r", seen: "node"},
	{about: "two protocols at one port", from: "c", to: "udp!10.96.0.52:80", want: "a"},
	{about: "a second port", from: "c", to: "10.96.0.52:81", want: "a"},

	{about: "IPv6, cluster IP", from: "c", to: "[fd00:96::60]:80", want: "a r", seen: "itself"},
	{about: "IPv6, cluster IP, from outside", from: "client", to: "[fd00:96::60]:80", want: "a r", seen: "node"},
	{about: "IPv6, balancer's address", from: "client", to: "[2001:db8:cafe::60]:80", want: "a r", seen: "node"},
	{about: "IPv6, NodePort", from: "client", to: "[" + nodeAddr6 + "]:30060", want: "a r", seen: "node"},
	{about: "IPv4 beside IPv6", from: "client", to: "203.0.113.60:80", want: "a r", seen: "node"},
	{about: "IPv6, policy Local", from: "client", to: "[2001:db8:cafe::61]:80", want: "a", seen: "itself"},
	{about: "IPv4 beside IPv6, policy Local", from: "client", to: "203.0.113.61:80", want: "a", seen: "itself"},

	{about: "a program of the host", from: "client", to: nodeAddr + ":2222", want: "host"},
	{about: "a program of the host, at a cluster IP", from: "client", to: "10.96.0.1:2222", want: "refused"},
	{about: "a program of the host, at a balancer's address", from: "client", to: "203.0.113.1:2222", want: "refused", nftables: "dropped"},
}

// What flags change.
var withFlags = []question{
	{about: "all masqueraded", from: "c", to: "10.96.0.1:80", want: "a b r", seen: "node"},
	{about: "NodePort at the primary address", from: "client", to: nodeAddr + ":30001", want: "refused"},
	{about: "NodePort at the address of the flag", from: "client", to: nodeSecond + ":30001", want: "a b r", seen: "node"},
}

// What changes of a Service change. Each goes on from the one before.
var changes = []struct {
	change    func(t *testing.T, w *world)
	questions []question
}{
	{becomes(""), []question{
		{about: "all endpoints gone", from: "client", to: "203.0.113.1:80", want: "refused"},
		{about: "all endpoints gone, NodePort", from: "client", to: nodeAddr + ":30001", want: "refused"},
	}},
	{becomes("b r"), []question{{about: "others there", from: "client", to: "203.0.113.1:80", want: "b r", seen: "node"}}},
	{becomes("b r", externalLocal(30101)), []question{
		{about: "policy is Local now", from: "client", to: "203.0.113.1:80", want: "b", seen: "itself"},
		{about: "policy is Local now, NodePort", from: "client", to: nodeAddr + ":30001", want: "b", seen: "itself"},
	}},
	{becomes("b r", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.3.0/24"} }), []question{
		{about: "policy is Cluster again, and ranges of clients", from: "stranger", to: "203.0.113.1:80", want: "b r", seen: "node"},
		{about: "a client outside of the ranges", from: "client", to: "203.0.113.1:80", want: "dropped"},
	}},
	{becomes("b r", func(s *v1.Service) {
		s.Spec.Type, s.Status.LoadBalancer, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{}, 0
	}), []question{
		{about: "type is ClusterIP now", from: "c", to: "10.96.0.1:80", want: "b r", seen: "itself"},
		{about: "type is ClusterIP now, NodePort", from: "client", to: nodeAddr + ":30001", want: "refused"},
		{about: "type is ClusterIP now, balancer's address", from: "client", to: "203.0.113.1:80", want: "dropped"},
	}},
	{func(t *testing.T, w *world) {
		stage.Must(t, w.plane.Delete(replay.Ref{Kind: "Service", Namespace: "shop", Name: "plain"}, metav1.DeleteOptions{}))
	}, []question{{about: "deleted", from: "c", to: "10.96.0.1:80", want: "dropped", drains: true}}},
}

// becomes gives the first of the Services other endpoints, and other things.
func becomes(endpoints string, more ...func(*v1.Service)) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) { w.apply(t, plain(endpoints, more...)...) }
}

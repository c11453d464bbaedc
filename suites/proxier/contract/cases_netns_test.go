//go:build netns

package contract

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/suites/proxier/testnode"
)

// cases are grouped by feature. Load balancer IPs and NodePorts end in the last number of their Service's cluster IP.
var cases = []testCase{
	{name: "cluster IP", client: "c", target: "10.96.0.1:80", want: "a b r", source: "itself"},
	{name: "cluster IP, from the node", client: "node", target: "10.96.0.1:80", want: "a b r", source: "node"},
	{name: "cluster IP, from outside: masqueraded", client: "client", target: "10.96.0.1:80", want: "a b r", source: "node"},
	{name: "port that the Service lacks", client: "client", target: "10.96.0.1:81", want: "refused"},
	{name: "NodePort at the primary address", client: "client", target: nodeAddr + ":30001", want: "a b r", source: "node"},
	{name: "NodePort at another address", client: "client", target: nodeSecond + ":30001", want: "refused"},
	{name: "load balancer IP", client: "client", target: "203.0.113.1:80", want: "a b r", source: "node"},
	{name: "load balancer IP, from a pod", client: "c", target: "203.0.113.1:80", want: "a b r"},
	{name: "external IP", client: "client", target: "203.0.113.101:80", want: "a b r", source: "node"},
	{name: "pod to its own Service", client: "a", target: "10.96.0.2:80", want: "a", source: "node"},

	{name: "policy Local", client: "client", target: "203.0.113.3:80", want: "a", source: "itself"},
	{name: "policy Local, NodePort", client: "client", target: nodeAddr + ":30003", want: "a", source: "itself"},
	{name: "policy Local, cluster IP", client: "c", target: "10.96.0.3:80", want: "a r", source: "itself"},
	{name: "policy Local, health", client: "client", target: "check!30103", want: "200, weight 1"},
	{name: "policy Local without a local endpoint", client: "client", target: "203.0.113.4:80", want: "dropped", ipvs: "r"},
	{name: "policy Local without a local endpoint, NodePort", client: "client", target: nodeAddr + ":30004", want: "dropped", ipvs: "r"},
	{name: "policy Local without a local endpoint, cluster IP", client: "c", target: "10.96.0.4:80", want: "r", source: "itself"},
	{name: "policy Local without a local endpoint, health", client: "client", target: "check!30104", want: "503, weight 0"},
	{name: "policy Local without any endpoint", client: "client", target: "203.0.113.5:80", want: "refused"},
	{name: "policy Local without any endpoint, health", client: "client", target: "check!30105", want: "503, weight 0"},
	{name: "policy Local, local endpoint terminating and serving", client: "client", target: "203.0.113.6:80", want: "a", source: "itself"},
	{name: "policy Local, local endpoint terminating and serving, health", client: "client", target: "check!30106", want: "503, weight 0"},
	{name: "policy Local, local endpoint terminated", client: "client", target: "203.0.113.7:80", want: "dropped", ipvs: "r"},
	// IPVS does not distinguish clients: see docs/proxier.md.
	{name: "policy Local, from a pod", client: "c", target: "203.0.113.3:80", want: "a", nftables: "a r"},
	{name: "policy Local without a local endpoint, from a pod", client: "c", target: "203.0.113.4:80", want: "dropped", nftables: "r", ipvs: "r"},
	{name: "policy Local without a local endpoint, from the node", client: "node", target: "203.0.113.4:80", want: "dropped", nftables: "r", ipvs: "r"},

	{name: "internal policy Local", client: "c", target: "10.96.0.10:80", want: "a", source: "itself"},
	{name: "internal policy Local, from the node", client: "node", target: "10.96.0.10:80", want: "a"},
	{name: "internal policy Local without a local endpoint", client: "c", target: "10.96.0.11:80", want: "dropped", ipvs: "refused"},
	{name: "internal policy Local, local endpoint terminating and serving", client: "c", target: "10.96.0.12:80", want: "a"},

	{name: "no ready endpoint, one terminating and serving", client: "c", target: "10.96.0.20:80", want: "a"},
	{name: "one ready endpoint, one terminating and serving", client: "c", target: "10.96.0.21:80", want: "a"},
	{name: "one unready endpoint", client: "c", target: "10.96.0.22:80", want: "refused"},
	{name: "one terminated endpoint", client: "c", target: "10.96.0.23:80", want: "refused"},
	{name: "one ready endpoint, one unready", client: "c", target: "10.96.0.24:80", want: "a"},
	{name: "no endpoints", client: "c", target: "10.96.0.25:80", want: "refused"},
	{name: "no endpoints, from the node", client: "node", target: "10.96.0.25:80", want: "refused"},
	{name: "no endpoints, load balancer IP", client: "client", target: "203.0.113.25:80", want: "refused"},
	{name: "no endpoints, NodePort", client: "client", target: nodeAddr + ":30025", want: "refused"},

	{name: "zone hints", client: "c", target: "10.96.0.30:80", want: "a"},
	{name: "zone hints, load balancer IP", client: "client", target: "203.0.113.30:80", want: "a"},
	{name: "zone hints, one missing", client: "c", target: "10.96.0.31:80", want: "a b r"},
	{name: "zone hints for other zones", client: "c", target: "10.96.0.32:80", want: "a r"},
	{name: "node hints", client: "c", target: "10.96.0.33:80", want: "a"},
	{name: "node hints for other nodes, zone hints", client: "c", target: "10.96.0.34:80", want: "a"},
	{name: "zone hints, unready in this zone", client: "c", target: "10.96.0.35:80", want: "b"},

	{name: "affinity", client: "c", target: "10.96.0.40:80", want: "one", source: "itself"},
	{name: "source ranges", client: "client", target: "203.0.113.41:80", want: "a r"},
	{name: "source ranges, other client", client: "stranger", target: "203.0.113.41:80", want: "dropped"},
	{name: "source ranges, NodePort", client: "stranger", target: nodeAddr + ":30041", want: "a r"},
	{name: "source ranges, cluster IP", client: "c", target: "10.96.0.41:80", want: "a r"},
	{name: "load balancer with ipMode Proxy (KEP-1860)", client: "client", target: "203.0.113.42:80", want: "dropped"},
	{name: "load balancer with ipMode Proxy, NodePort", client: "client", target: nodeAddr + ":30042", want: "a"},
	{name: "Service of another proxy", client: "c", target: "10.96.0.43:80", want: "dropped"},
	{name: "scheduler annotation", client: "c", target: "10.96.0.44:80", want: "one", nftables: "a b r", ipvs: "a b r"},

	{name: "UDP", client: "c", target: "udp!10.96.0.50:80", want: "a b", source: "itself"},
	{name: "UDP, load balancer IP", client: "client", target: "udp!203.0.113.50:80", want: "a b", source: "node"},
	{name: "UDP, NodePort", client: "client", target: "udp!" + nodeAddr + ":30050", want: "a b", source: "node"},
	{name: "SCTP", client: "c", target: "sctp!10.96.0.51:80", want: "a r", source: "itself"},
	{name: "SCTP, load balancer IP", client: "client", target: "sctp!203.0.113.51:80", want: "a r", source: "node"},
	{name: "two protocols at one port", client: "c", target: "udp!10.96.0.52:80", want: "a"},
	{name: "a second port", client: "c", target: "10.96.0.52:81", want: "a"},

	{name: "IPv6, cluster IP", client: "c", target: "[fd00:96::60]:80", want: "a r", source: "itself"},
	{name: "IPv6, cluster IP, from outside", client: "client", target: "[fd00:96::60]:80", want: "a r", source: "node"},
	{name: "IPv6, load balancer IP", client: "client", target: "[2001:db8:cafe::60]:80", want: "a r", source: "node"},
	{name: "IPv6, NodePort", client: "client", target: "[" + nodeAddr6 + "]:30060", want: "a r", source: "node"},
	{name: "dual-stack IPv4", client: "client", target: "203.0.113.60:80", want: "a r", source: "node"},
	{name: "IPv6, policy Local", client: "client", target: "[2001:db8:cafe::61]:80", want: "a", source: "itself"},
	{name: "dual-stack IPv4, policy Local", client: "client", target: "203.0.113.61:80", want: "a", source: "itself"},

	{name: "program of the host", client: "client", target: nodeAddr + ":2222", want: "host"},
	{name: "program of the host, at a cluster IP", client: "client", target: "10.96.0.1:2222", want: "refused"},
	{name: "program of the host, at a load balancer IP", client: "client", target: "203.0.113.1:2222", want: "refused", nftables: "dropped"},
}

// casesWithFlags depend on flags.
var casesWithFlags = []testCase{
	{name: "masquerade all", client: "c", target: "10.96.0.1:80", want: "a b r", source: "node"},
	{name: "NodePort at the primary address", client: "client", target: nodeAddr + ":30001", want: "refused"},
	{name: "NodePort at the address of the flag", client: "client", target: nodeSecond + ":30001", want: "a b r", source: "node"},
}

// changes are applied to one Service in turn.
var changes = []struct {
	change func(t *testing.T, w *testbed)
	cases  []testCase
}{
	{changeTo(""), []testCase{
		{name: "all endpoints removed", client: "client", target: "203.0.113.1:80", want: "refused"},
		{name: "all endpoints removed, NodePort", client: "client", target: nodeAddr + ":30001", want: "refused"},
	}},
	{changeTo("b r"), []testCase{{name: "endpoints replaced", client: "client", target: "203.0.113.1:80", want: "b r", source: "node"}}},
	{changeTo("b r", externalLocal(30101)), []testCase{
		{name: "policy changed to Local", client: "client", target: "203.0.113.1:80", want: "b", source: "itself"},
		{name: "policy changed to Local, NodePort", client: "client", target: nodeAddr + ":30001", want: "b", source: "itself"},
	}},
	{changeTo("b r", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.3.0/24"} }), []testCase{
		{name: "policy changed to Cluster with source ranges", client: "stranger", target: "203.0.113.1:80", want: "b r", source: "node"},
		{name: "client outside the source ranges", client: "client", target: "203.0.113.1:80", want: "dropped"},
	}},
	{changeTo("b r", func(s *v1.Service) {
		s.Spec.Type, s.Status.LoadBalancer, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{}, 0
	}), []testCase{
		{name: "type changed to ClusterIP", client: "c", target: "10.96.0.1:80", want: "b r", source: "itself"},
		{name: "type changed to ClusterIP, NodePort", client: "client", target: nodeAddr + ":30001", want: "refused"},
		{name: "type changed to ClusterIP, load balancer IP", client: "client", target: "203.0.113.1:80", want: "dropped"},
	}},
	{func(t *testing.T, w *testbed) {
		testnode.Must(t, w.api.Delete(replay.Ref{Kind: "Service", Namespace: "shop", Name: "plain"}, metav1.DeleteOptions{}))
	}, []testCase{{name: "deleted", client: "c", target: "10.96.0.1:80", want: "dropped", waitForDrain: true}}},
}

// changeTo gives the first Service other endpoints and settings.
func changeTo(endpoints string, more ...func(*v1.Service)) func(t *testing.T, w *testbed) {
	return func(t *testing.T, w *testbed) { w.apply(t, plainService(endpoints, more...)...) }
}

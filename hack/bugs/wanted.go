package bugs

// Wanted are the specs that the conformance suite lacks, each with the bugs that it would find and no other spec finds. A spec that three bugs
// call for is to be built.
var Wanted = []struct {
	Spec string   // a sentence
	Bugs []string // ids
}{
	{"a flow of datagrams follows a change of the target port", []string{"k8s-130542"}},
	{"a flow of datagrams is answered again after the proxy's rules were lost", []string{"k8s-103857", "k8s-105192"}},
	{"a flow of datagrams stays with its pod while another Service with its external IP changes", []string{"k8s-129982"}},
	{"a flow of datagrams leaves a pod that was unready before it ended", []string{"k8s-125467"}},
	{"with sessionAffinity a client leaves a pod that is unready or has ended", []string{"k8s-106030", "k8s-71834"}},
	{"open connections with a request every few milliseconds survive many flaps", []string{"k8s-117205"}},
	{"open connections survive the deletion of their Service", []string{"k8s-71894"}},
	{"a node without a pod is served at the load balancer's address, in a run without addresses of IPv6", []string{"k8s-65387"}},
	{"a node whose proxy cannot write its rules fails health checks", []string{"k8s-111661"}},
	{"changes during syncs that fail are followed afterwards", []string{"k8s-112604"}},
	{"a Service with the longest names that the API accepts does not stop the updates of others", []string{"k8s-139516"}},
	{"an endpoint that is ready in one EndpointSlice is used, also if another one lists its address as not ready", []string{"k8s-135266"}},
	{"an endpoint whose node is in the field deprecatedTopology is local to that node", []string{"k8s-110208"}},
	{"the proxy writes its rules again after another program has emptied its tables", []string{"flushed-ruleset", "k8s-134147"}},
	{"a node with a firewall that drops by default forwards the packets of Services and answers health checks", []string{"k8s-68194", "k8s-97824"}},
	{"a Service with the address of a node leaves that node's own programs reachable", []string{"k8s-114815", "k8s-75290"}},
	{"only one host answers ARP requests for the address of a load balancer", []string{"k8s-59976"}},
	{"the proxy of another mode serves Services that had no endpoints during the change", []string{"k8s-102314"}},
}

// Unjudged are bugs with which each spec of their features is not judged, with the reason that a run showed.
var Unjudged = map[string]string{
	"k8s-68194": "the run `interference-stale-allow` is invalid with it. Its nodes forward only what the proxy accepts, so that no request is answered before the first attempt",
}

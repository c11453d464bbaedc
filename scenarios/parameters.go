package scenarios

import (
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// The parameters of the workload, which every scenario has.
var (
	TrafficPolicy   = newWord("trafficPolicy", "Local", "externalTrafficPolicy of the Service: Local or Cluster", "Local", "Cluster")
	Replicas        = newNumber("replicas", "1", "pods of the Deployment", 1, 100)
	AntiAffinity    = newSwitch("antiAffinity", "on", "pods run on different nodes")
	shutdownDelay   = newDuration("shutdownDelay", "30s", "time that a backend continues to serve after SIGTERM", 0, time.Hour)
	GracePeriod     = newDuration("gracePeriod", "60s", "terminationGracePeriodSeconds of the pods", 0, 24*time.Hour)
	PreStop         = newDuration("preStop", "0s", "preStop sleep of the pods", 0, time.Hour)
	readinessPeriod = newDuration("readinessPeriod", "1s", "time between two readiness probes of a pod", time.Second, time.Hour)
	// AddressFamily is the family of the lab; see Params.Family.
	AddressFamily = newWord("family", string(record.IPv4), "address family of nodes, pods, Services, load balancer and clients: ipv4, ipv6 or dual; dual has each lane in both, and judges both",
		record.Families()...).needing(AddressFamilies)
	// TerminatingFallback is a setting of the subject.
	TerminatingFallback = newSwitch("terminatingFallback", "on", "KEP-1669: use serving terminating endpoints when none is ready; off: as kube-proxy up to 1.25; the default is what the subject does by itself").
				needing(RestartableProxies)
)

// The parameters of the load balancer and of the measured windows, which every scenario has.
var (
	BalancerKind = newWord("loadBalancer", "passthrough", "kind of external load balancer: passthrough or haproxy", "passthrough", HAProxy).needing(OwnLoadBalancer)
	CheckTarget  = newWord("checkTarget", "auto", "target of the load balancer's health check: auto, healthz, healthCheckNodePort or nodePort",
		"auto", "healthz", "healthCheckNodePort", "nodePort").needing(OwnLoadBalancer)
	CheckInterval = newDuration("checkInterval", "5s", "time between two health checks of a node", 100*time.Millisecond, time.Hour)
	CheckFall     = newNumber("checkFall", "3", "failed checks in a row until the load balancer removes a node", 1, 100)
	CheckRise     = newNumber("checkRise", "1", "passed checks in a row until the load balancer adds a node", 1, 100)
	Flows         = newWord("flows", "sticky", "flow affinity: sticky (a flow stays on its node) or rehash (plain ECMP)", "sticky", "rehash").needing(OwnLoadBalancer)
	// AsCloud makes the load balancer apply what Services ask of those of clouds.
	AsCloud  = newSwitch("cloud", "off", "whether the load balancer applies sessionAffinity and loadBalancerSourceRanges of Services, as those of clouds do").needing(OwnLoadBalancer)
	baseline = newDuration("baseline", "20s", "time of undisturbed traffic before the scenario", 10*time.Second, time.Hour)
	settle   = newDuration("settle", "20s", "time of traffic after the scenario", time.Second, time.Hour)
	// RecoverWithin is the limit of the recovery check.
	RecoverWithin = newDuration("recoverWithin", "30s", "time in which each running proxy must follow one more change at the end of the run; 0s: this is not checked",
		0, time.Hour)
)

// HAProxy is the kind of load balancer that terminates connections.
const HAProxy = "haproxy"

// Common are the parameters that every scenario has: of the workload, the load balancer and the measured windows.
func Common() []Parameter {
	return []Parameter{TrafficPolicy.Parameter, Replicas.Parameter, AntiAffinity.Parameter, shutdownDelay.Parameter, GracePeriod.Parameter, PreStop.Parameter,
		readinessPeriod.Parameter, AddressFamily.Parameter, TerminatingFallback.Parameter,
		BalancerKind.Parameter, CheckTarget.Parameter, CheckInterval.Parameter, CheckFall.Parameter, CheckRise.Parameter, Flows.Parameter, AsCloud.Parameter,
		shortestFault.Parameter, baseline.Parameter, settle.Parameter, RecoverWithin.Parameter, Others.Parameter}
}

// The parameters of the lanes, in scenarios that let users name them.
var (
	// Lanes names the lanes that measure the Service; each is counted by itself.
	Lanes  = newList("lanes", record.ProtocolNew, "protocols of the measured lanes, each at the run's rate: some of "+strings.Join(timeline.Protocols(), ", "), timeline.Protocols()...)
	Target = newWord("target", toLoadBalancer, "address of the Service that the lanes use: loadBalancer; or, without the load balancer, nodePort (of the first node), "+
		"externalIP (routed to the first node) or clusterIP", toLoadBalancer, toNodePort, ToExternalIP, toClusterIP).needing(ClientPlacement)
	ClientPlace = newWord("client", Outside, "place of the client: outside; or in the cluster, on the first node (node) or in a pod there (pod)", Outside, OnNode, InPod).needing(ClientPlacement)
	closing     = newWord("close", "fin", "end of a connection by the client: fin, or rst; conntrack keeps an entry for 120 s after fin and for 10 s after rst", "fin", "rst")
	direct      = newSwitch("direct", "off", "whether additional lanes go to each ready pod's own address, without load balancer and proxy; a loss that occurs there too is not the proxy's").needing(PodLanes)
	unserved    = newNumber("unserved", "0", "a port without a Service, to which an additional lane connects at the Service's address; an answer there is recorded, and does not count for the verdict; 0: no such lane",
		0, 65535).needing(ClientPlacement)
	reuse = newParameter("reuse", "0s", "time after which a five-tuple is used again; 0s: none is used twice within 130 s", reuseTime)
)

// laneParameters are Lanes and the parameters that come with it.
func laneParameters() Parameter {
	return laneParametersOf(closing.Parameter, direct.Parameter, reuse.Parameter, Target.Parameter, ClientPlace.Parameter, unserved.Parameter)
}

// laneParametersOffNodes are laneParameters without clients and targets on nodes, because nodes come and go.
func laneParametersOffNodes() Parameter {
	return laneParametersOf(closing.Parameter, direct.Parameter, reuse.Parameter)
}

func laneParametersOf(all ...Parameter) Parameter {
	p := Lanes.Parameter
	p.with = all
	return p
}

// The parameters that several scenarios have, each with its own default.
var (
	nodeChoice    = newText("node", "auto", "the node; auto for the first that has a pod of the Deployment")
	offFor        = newDuration("off", "90s", "time that a lost node has no power", time.Second, time.Hour)
	endSignal     = newWord("signal", "TERM", "signal that ends the proxy: TERM or KILL; STOP suspends it for the downtime", "TERM", "KILL", "STOP")
	downtime      = newDuration("downtime", "2s", "time that a node is without its proxy", 0, time.Hour)
	unreadyFor    = newDuration("unready", "5s", "time that a pod stays unready, and time between two flaps", 100*time.Millisecond, time.Hour)
	watchFor      = newDuration("watch", "90s", "", 0, 24*time.Hour)
	noService     = newDuration("away", "10s", "time without the Service", 0, time.Hour)
	ChurnFor      = newDuration("for", "24h", "duration of the churn", time.Minute, 31*24*time.Hour)
	changeRate    = newNumber("changes", "20", "changes of endpoints per second of churn", 1, 1000)
	burstFor      = newDuration("burst", "400ms", "duration of a burst", 10*time.Millisecond, time.Minute)
	minAvailable  = newNumber("minAvailable", "1", "minAvailable of the PodDisruptionBudget; 0: no such object", 0, 100)
	rollAtEnd     = newSwitch("roll", "off", "whether the Deployment is rolled at the end, which shows stale rules of an old proxy")
	emptyFirst    = newSwitch("empty", "off", "whether the Deployment is scaled to zero before the first node and back at the end, which shows stale rejecting rules of an old proxy")
	upgradeBack   = newSwitch("back", "off", "whether the old proxies return afterwards, node by node")
	upgradeRest   = newDuration("between", "5s", "time between two nodes", 0, time.Hour)
	idleCollects  = newSwitch("idleCollection", "on", "whether a proxy written in Go collects its garbage every two minutes while it is idle; off: only beyond 192 MB")
	clusterPolicy = TrafficPolicy.withDefault("Cluster")
)

// To is the subject that the proxies become, or a second proxy; empty for none.
var To = newParameter("to", "", "new program of the proxies: a subject, such as kube-proxy@v1.26.0/iptables, or itself; must be given",
	func(text string) (string, error) { return text, nil })

// CollectsWhenIdle reports whether a proxy written in Go collects its garbage while it is idle.
func (p Params) CollectsWhenIdle() bool { return !idleCollects.In(p) || idleCollects.Of(p) }

// Family is the family of the lab, which a live cluster chooses itself.
func (p Params) Family() record.Family { return record.Family(AddressFamily.Of(p)) }

// laneNames are the protocols that the run measures with, in their fixed order. A scenario without the parameter measures new
// connections only.
func (p Params) laneNames() []string {
	named := Lanes.Of(p)
	if named == nil {
		named = []string{record.ProtocolNew}
	}
	return slices.DeleteFunc(timeline.Protocols(), func(name string) bool { return !slices.Contains(named, name) })
}

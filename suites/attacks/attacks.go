// Package attacks runs faulty proxies, each with one fault, and requires the verdict, the lane and the class that the fault must have. A
// fault below the detection floor that the report states may pass, and a case says so.
package attacks

import (
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// attack is a faulty proxy and what a run with it must report.
type attack struct {
	name     string
	faults   []string // see suites/selfcheck/faulty
	scenario string   // quiet, where it is empty
	set      map[string]string
	flags    []string // more flags of the proxier
	bundled  bool     // the bundled proxier itself
	seed     int64    // 1, where it is 0

	want     analysis.Verdict
	lane     string         // where attempts must fail; empty for none
	classes  []record.Class // of failures on that lane; each failure has one of them
	node     string         // the only node of the failures; empty for any
	reason   string         // words of the reasons
	mostly   bool           // at least 9 of 10 failures have one of the classes, because the first and the last one may meet the edge
	earliest string         // phase in which the first failure is; scenario, where it is empty
	fails    string         // words of the error, of a run that cannot measure
	smoke    bool
	ci       bool          // not only at night
	excused  bool          // the scenario has unavoidable loss
	among    time.Duration // lane, classes and node are those of one outage of at most this length, among others of the scenario; 0 for all outages
}

// The lanes.
const (
	tcpNew    = "tcp-new"
	tcpLong   = "tcp-long"
	httpReuse = "http-reuse"
	udpSticky = "udp-sticky"
	udpFresh  = "udp-fresh"
)

// every are settings of all runs: short, with pods that each node can reach.
var every = map[string]string{"trafficPolicy": "Cluster", "quietFor": "20s", "settle": "10s"}

// settings are every, those of the case, and its lane.
func (a attack) settings() map[string]string {
	set := maps.Clone(every)
	if a.scenarioName() != "quiet" {
		delete(set, "quietFor")
	}
	if a.lane != "" && a.lane != tcpNew && a.scenario != "flap" { // which has its own lane of open connections
		set["lanes"] = "tcp-new," + a.lane
	}
	maps.Copy(set, a.set)
	return set
}

func (a attack) scenarioName() string {
	if a.scenario == "" {
		return "quiet"
	}
	return a.scenario
}

// web is the part of a rule that selects packets to the measured Service, and not to the canary.
const (
	web     = "ip daddr 203.0.113.10 "
	webTCP  = web + "tcp dport 80 "
	webUDP  = web + "udp dport 80 "
	newTCP  = webTCP + "tcp flags & (syn|ack) == syn "
	replies = "ip saddr 203.0.113.10 tcp sport 80 "
)

// packetFaults treat packets wrongly, once, in the scenario of a run in which nothing else happens.
var packetFaults = []attack{
	{name: "drops new connections for 800 ms", faults: []string{"*:rule:32s:800ms:in " + newTCP + "drop"},
		lane: tcpNew, classes: []record.Class{record.Delayed}, smoke: true},
	{name: "drops new connections on one node for 6 s", faults: []string{"node-2:rule:30s:6s:in " + newTCP + "drop"},
		lane: tcpNew, classes: []record.Class{record.ConnectTimeout, record.Delayed}, node: "node-2"},
	{name: "drops new connections on one node for 100 ms", faults: []string{"node-3:rule:32s:100ms:in " + newTCP + "drop"},
		lane: tcpNew, classes: []record.Class{record.Delayed}, node: "node-3"},
	{name: "refuses with RST for 100 ms", faults: []string{"*:rule:32s:100ms:in " + newTCP + "reject with tcp reset"},
		lane: tcpNew, classes: []record.Class{record.Refused}},
	{name: "refuses a single connection", faults: []string{"node-1:rule:32s:10s:in " + newTCP + "limit rate 1/day burst 1 packets reject with tcp reset"},
		lane: tcpNew, classes: []record.Class{record.Refused}, node: "node-1"},
	{name: "refuses clients with odd ports", faults: []string{"*:rule:32s:1s:in " + newTCP + "tcp sport & 1 == 1 reject with tcp reset"},
		lane: tcpNew, classes: []record.Class{record.Refused}},
	{name: "answers with ICMP port unreachable", faults: []string{"*:rule:32s:100ms:in " + newTCP + "reject"},
		lane: tcpNew, classes: []record.Class{record.Rejected}},
	{name: "answers with ICMP host prohibited", faults: []string{"*:rule:32s:100ms:in " + newTCP + "reject with icmp type host-prohibited"},
		lane: tcpNew, classes: []record.Class{record.Rejected}},
	{name: "answers with ICMP net unreachable", faults: []string{"*:rule:32s:100ms:in " + newTCP + "reject with icmp type net-unreachable"},
		lane: tcpNew, classes: []record.Class{record.Unreachable}},
	{name: "sends connections to the pod of another Service", faults: []string{"node-2:rule:32s:300ms:into " + webTCP + "dnat to 203.0.113.11"},
		lane: tcpNew, classes: []record.Class{record.Misrouted}, node: "node-2", smoke: true},
	{name: "drops the replies to SYN", faults: []string{"*:rule:32s:800ms:out " + replies + "tcp flags & (syn|ack) == (syn|ack) drop"},
		lane: tcpNew, classes: []record.Class{record.Delayed}},
	{name: "drops the data of clients", faults: []string{"*:rule:32s:1500ms:in " + webTCP + "tcp flags & (psh|ack) == (psh|ack) drop"},
		lane: tcpNew, classes: []record.Class{record.ReplyTimeout}, mostly: true},
	{name: "drops answers", faults: []string{"node-1:rule:32s:1500ms:out " + replies + "tcp flags & (psh|ack) == (psh|ack) drop"},
		lane: tcpNew, classes: []record.Class{record.ReplyTimeout}, node: "node-1", mostly: true},
	{name: "resets established connections", faults: []string{"*:rule:32s:200ms:in " + webTCP + "tcp flags & (psh|ack) == (psh|ack) reject with tcp reset"},
		lane: tcpNew, classes: []record.Class{record.Reset}},
	{name: "answers SYN from a wrong port", faults: []string{"*:rule:32s:1500ms:out " + replies + "tcp flags & (syn|ack) == (syn|ack) tcp sport set 81"},
		lane: tcpNew, classes: []record.Class{record.ConnectTimeout, record.Delayed}},
	{name: "answers SYN from a wrong address", faults: []string{"node-3:rule:32s:1500ms:out " + replies + "tcp flags & (syn|ack) == (syn|ack) ip saddr set 203.0.113.99"},
		lane: tcpNew, classes: []record.Class{record.ConnectTimeout, record.Delayed}, node: "node-3"},
	{name: "drops new connections once traffic settles", faults: []string{"*:rule:46s:500ms:in " + newTCP + "drop"},
		lane: tcpNew, classes: []record.Class{record.Delayed}, earliest: "settle"},
	{name: "drops UDP only", faults: []string{"*:rule:32s:200ms:in " + webUDP + "drop"},
		lane: udpFresh, classes: []record.Class{record.ReplyTimeout}},
	{name: "answers UDP with ICMP port unreachable", faults: []string{"*:rule:32s:200ms:in " + webUDP + "reject"},
		lane: udpFresh, classes: []record.Class{record.Rejected}},
	{name: "drops UDP replies", faults: []string{"node-2:rule:32s:500ms:out ip saddr 203.0.113.10 udp sport 80 drop"},
		lane: udpFresh, classes: []record.Class{record.ReplyTimeout}, node: "node-2"},
	{name: "changes the payload of UDP replies", faults: []string{"*:rule:32s:200ms:out ip saddr 203.0.113.10 udp sport 80 @th,64,32 set 0x41414141 udp checksum set 0"},
		lane: udpFresh, classes: []record.Class{record.WrongAnswer}},
	{name: "stalls a UDP flow", faults: []string{"*:rule:32s:500ms:in " + webUDP + "drop"},
		lane: udpSticky, classes: []record.Class{record.ReplyTimeout}},
	{name: "stalls open connections", faults: []string{"*:rule:32s:1s:in " + webTCP + "tcp flags & (psh|ack) == (psh|ack) drop"},
		lane: tcpLong, classes: []record.Class{record.Stalled, record.ReplyTimeout}, mostly: true},
	{name: "resets open connections", faults: []string{"*:rule:32s:50ms:tracked " + webTCP + "ct state established reject with tcp reset"},
		lane: tcpLong, classes: []record.Class{record.Reset}, mostly: true},
	{name: "resets connections that are used again", faults: []string{"*:rule:32s:50ms:tracked " + webTCP + "ct state established reject with tcp reset"},
		lane: httpReuse, classes: []record.Class{record.Reset}, mostly: true},
	{name: "refuses at node ports", faults: []string{"node-1:rule:32s:200ms:in tcp dport 30000-32767 tcp flags & (syn|ack) == syn reject with tcp reset"},
		set: map[string]string{"target": "nodePort"}, lane: tcpNew, classes: []record.Class{record.Refused}},
	{name: "refuses at cluster IPs", faults: []string{"node-1:rule:32s:200ms:in ip daddr 10.96.0.0/16 tcp dport 80 tcp flags & (syn|ack) == syn reject with tcp reset"},
		set: map[string]string{"target": "clusterIP", "client": "pod"}, lane: tcpNew, classes: []record.Class{record.Refused}},
	{name: "drops cluster IPs for clients on the node", faults: []string{"node-1:rule:32s:1500ms:output ip daddr 10.96.0.0/16 tcp dport 80 tcp flags & (syn|ack) == syn drop"},
		set: map[string]string{"target": "clusterIP", "client": "node"}, lane: tcpNew, classes: []record.Class{record.Delayed, record.ConnectTimeout, record.Rejected}},
	{name: "refuses at external IPs", faults: []string{"node-1:rule:32s:200ms:in ip daddr 192.0.2.0/24 tcp dport 80 tcp flags & (syn|ack) == syn reject with tcp reset"},
		set: map[string]string{"target": "externalIP"}, lane: tcpNew, classes: []record.Class{record.Refused}},
}

// fromStart are faults that begin before the scenario. They are the subject's, and no defect of the measurement.
var fromStart = []attack{
	{name: "misroutes one of 500 connections from the start", faults: []string{"*:rule:1s:1h:into " + webTCP + "numgen inc mod 500 == 7 dnat to 203.0.113.11"},
		lane: tcpNew, classes: []record.Class{record.Misrouted}, earliest: "baseline"},
	{name: "refuses for 15 ms every 4 s from the start", faults: repeated("16s", "20s", "24s", "28s", "32s", "36s", "40s"),
		lane: tcpNew, classes: []record.Class{record.Refused}, earliest: "baseline"},
}

// repeated refuses new connections for 15 ms at each of these times.
func repeated(times ...string) (faults []string) {
	for _, t := range times {
		faults = append(faults, "*:rule:"+t+":15ms:in "+newTCP+"reject with tcp reset")
	}
	return faults
}

// latencyFaults make connections slow, and lose none.
var latencyFaults = []attack{
	{name: "delays a share of packets by 300 ms", faults: []string{"*:delay:26s:1h:300ms 0.4"}, reason: "became slow", smoke: true},
	{name: "delays all packets by 150 ms", faults: []string{"*:delay:26s:1h:150ms 100"}, reason: "became slow"},
}

// notFollowed is the reason of a run with a proxy that does not follow changes, after its node.
const notFollowed = "'s proxy has not followed changes since "

// followFaults do not follow changes.
var followFaults = []attack{
	{name: "follows no change from the scenario on", faults: []string{"*:dead:30s:1h"}, set: map[string]string{"recoverWithin": "5s"}, reason: notFollowed},
	{name: "follows no change on one node", faults: []string{"node-2:dead:30s:1h"}, set: map[string]string{"recoverWithin": "5s"}, reason: "node-2" + notFollowed},
	{name: "keeps removed endpoints", faults: []string{"*:stale-endpoint"}, scenario: "rollout", set: short,
		lane: tcpNew, classes: []record.Class{record.ConnectTimeout, record.Delayed, record.Unreachable}, mostly: true},
	{name: "keeps the conntrack entries of UDP", faults: []string{"*:udp-left"}, scenario: "rollout", set: short,
		lane: udpSticky, classes: []record.Class{record.ReplyTimeout}, mostly: true},
	{name: "adds an endpoint again instead of raising its weight", faults: []string{"*:re-add"}, scenario: "flap",
		set:  map[string]string{"flaps": "4", "openConnections": "8", "unready": "100ms", "stayOpen": "1s", "watch": "0s", "askEvery": "20ms", "baseline": "10s"},
		lane: tcpLong, classes: []record.Class{record.Reset}, mostly: true},
	{name: "deletes its rules at a restart", faults: []string{"*:flush:0s:400ms"}, flags: []string{"--after-restart"}, scenario: "restart", set: map[string]string{"downtime": "500ms"},
		lane: tcpNew, classes: []record.Class{record.Refused}},
	{name: "is dead after a restart", faults: []string{"*:dead-again"}, scenario: "restart", set: map[string]string{"recoverWithin": "5s"}, reason: notFollowed},
	{name: "does not use terminating endpoints", flags: []string{"--terminating-fallback=false"}, scenario: "rollout",
		set:  map[string]string{"trafficPolicy": "Local", "rollouts": "1", "shutdownDelay": "20s", "gracePeriod": "30s"},
		lane: tcpNew, classes: []record.Class{record.Rejected, record.ConnectTimeout, record.Delayed}},
	{name: "passes health checks without a local endpoint", faults: []string{"*:lying-health"}, scenario: "rollout",
		set:  map[string]string{"trafficPolicy": "Local", "rollouts": "1", "shutdownDelay": "3s", "gracePeriod": "5s"},
		lane: tcpNew, classes: []record.Class{record.ConnectTimeout, record.Delayed, record.Rejected}, mostly: true, reason: "without an endpoint that it may use"},
	{name: "exits at once", faults: []string{"*:exit"}, fails: "no such flag: --foo", want: analysis.Invalid},
	{name: "exits on all nodes", faults: []string{"*:exits:30s:0s"}, reason: "it exited then, and nothing started it again"},
	{name: "drops for a time after a restart", faults: []string{"node-1:drop:3s:800ms"}, flags: []string{"--after-restart"}, scenario: "restart", set: map[string]string{"lanes": "tcp-new,udp-fresh"},
		lane: tcpNew, classes: []record.Class{record.Delayed}, node: "node-1"},
	{name: "has no endpoints for a time after a restart", faults: []string{"node-1:half-sync:3s:500ms"}, flags: []string{"--after-restart"}, scenario: "restart", set: map[string]string{"lanes": "tcp-new,udp-fresh"},
		lane: tcpNew, classes: []record.Class{record.Rejected}, node: "node-1"},
}

// short are the settings of a rollout.
var short = map[string]string{"rollouts": "1", "shutdownDelay": "3s", "gracePeriod": "5s", "replicas": "2"}

// healthy are twins that have no fault, or one below the detection floor, and must pass.
var healthy = []attack{
	{name: "has no fault", want: analysis.Pass, smoke: true},
	{name: "has no fault during a restart", scenario: "restart", want: analysis.Pass},
	{name: "has no fault during a rollout", scenario: "rollout", set: short, want: analysis.Pass},
	{name: "delays all packets by 10 ms, below the bound", faults: []string{"*:delay:26s:1h:10ms 100"}, want: analysis.Pass},
}

// attacks are all cases. Where a case states no verdict, it is fail.
func attacks() []attack {
	all := slices.Concat(packetFaults, fromStart, latencyFaults, followFaults, healthy, unavoidable())
	for i := range all {
		if all[i].want == "" {
			all[i].want = analysis.Fail
		}
	}
	return all
}

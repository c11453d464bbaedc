//go:build lab

// Package selfcheck compares reports with known faults. The bundled proxier injects the faults, and the report must have an outage for
// each, with its class, node, backend and bounds, and no other outage.
package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
	"github.com/hitless/hitless/suites/faulty"
)

func TestSelfcheck(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "selfcheck")
}

// restarted has faults after a restart, wrongHealth a wrong health check, and stale real servers that are never deleted. The proxiers
// of dead change nothing after a restart: on one node in a VM, on each node in onHost and with other seeds.
var restarted, wrongHealth, stale, dead, onHost *suites.Future

// deadSeeds are the runs with other seeds.
var deadSeeds []*suites.Future

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	if suites.Selected(suites.Host) {
		onHost = suites.Start(ctx, dir, "dead-on-host-run", run.Options{Scenario: "restart", LabOptions: site.LabOptions{ControlPlane: "replay", Kernel: "host",
			Nodes: 2, Subject: "exec:" + buildDead(dir)}, Seed: 1, Rate: 10, Set: map[string]string{"trafficPolicy": "Cluster", "replicas": "1", "baseline": "20s",
			"settle": "5s", "which": "each", "recoverWithin": "5s"}})
	}
	if !suites.RunsUnlabeled() && !suites.Selected(suites.Smoke) && !suites.Selected(suites.Nightly) {
		return
	}
	if onHost != nil {
		_, _, _ = onHost.Wait() // VMs would delay its attempts; its spec returns the error
	}
	startKinds(ctx, dir)
	program := build(dir)
	begin := func(name, scenario string, rate float64, set map[string]string, faults ...string) *suites.Future {
		return suites.Start(ctx, dir, name+"-run", run.Options{Scenario: scenario, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: "exec:" + describe(dir, name, program, faults)}, Seed: 1, Rate: rate, Set: set})
	}
	restarted = begin("restarted", "restart", 100, map[string]string{"lanes": "tcp-new,udp-fresh,udp-sticky", "trafficPolicy": "Local",
		"downtime": "500ms", "baseline": "10s", "settle": "5s"},
		"node-1:flush:0s:400ms", "node-1:drop:3s:150ms", "node-2:half-sync:3s:300ms", "node-3:wrong-backend:3s:300ms")
	dies := func(name string, lab site.LabOptions, seed int64, which string) *suites.Future {
		lab.ControlPlane, lab.Subject = "replay", "exec:"+describe(dir, name, program, []string{"*:dead-again"})
		return suites.Start(ctx, dir, name+"-run", run.Options{Scenario: "restart", LabOptions: lab, Seed: seed, Rate: 30,
			Set: map[string]string{"trafficPolicy": "Cluster", "baseline": "10s", "settle": "5s", "which": which, "recoverWithin": "5s"}})
	}
	dead = dies("dead", site.LabOptions{}, 1, "one")
	if suites.Selected(suites.Nightly) {
		for _, seed := range []int64{2, 3} {
			deadSeeds = append(deadSeeds, dies(fmt.Sprint("dead-", seed), site.LabOptions{}, seed, "each"))
		}
	}
	if !suites.RunsUnlabeled() {
		return
	}
	stale = begin("stale", "rollout", 30, map[string]string{"lanes": "tcp-new,udp-sticky", "trafficPolicy": "Cluster", "replicas": "2",
		"rollouts": "1", "shutdownDelay": "3s", "gracePeriod": "5s", "settle": "10s"},
		"node-2:stale-endpoint", "*:udp-left")
	wrongHealth = begin("wrong-health", "soak", 20, map[string]string{"for": "1m", "rolloutsPerHour": "61", "restartsPerHour": "0", "scalesPerHour": "0",
		"replicas": "1", "readinessPeriod": "1s", "shutdownDelay": "3s", "gracePeriod": "5s", "baseline": "20s", "settle": "30s", "keepGoing": "on"},
		"*:lying-health")
})

// build builds the faulty proxier.
func build(dir string) string {
	GinkgoHelper()
	program := filepath.Join(dir, "faulty")
	Expect(suites.Build(faulty.Package, program)).To(Succeed())
	return program
}

// buildDead builds a proxy whose rules are in nftables, which every host has, and returns its subject file.
func buildDead(dir string) string {
	GinkgoHelper()
	const source = "../../docs/examples/exec-nftables"
	dir = filepath.Join(dir, "exec-nftables")
	Expect(os.CopyFS(dir, os.DirFS(source))).To(Succeed())
	Expect(suites.Build("github.com/hitless/hitless/docs/examples/exec-nftables", filepath.Join(dir, "exec-nftables"))).To(Succeed())
	return filepath.Join(dir, "dead.yaml")
}

// describe writes a subject file with these faults and returns its name.
func describe(dir, name, program string, faults []string) string {
	GinkgoHelper()
	var flags []string
	if name == "restarted" {
		flags = append(flags, "--after-restart")
	}
	file := filepath.Join(dir, name+".yaml")
	Expect(faulty.Write(file, name, program, faults, flags)).To(Succeed())
	return file
}

// failed waits for a run with verdict fail, whose paths are those of the load balancer.
func failed(f *suites.Future) (*run.Result, *record.History) {
	GinkgoHelper()
	result, history := f.Finished()
	Expect(analysis.CheckPaths(history)).To(Succeed())
	Expect(result.Report.Verdict).To(Equal(analysis.Fail), "%v", result.Report.Reasons)
	return result, history
}

// faultClass is the class of new flows during each fault.
var faultClass = map[string]record.Class{
	"flush tcp": record.Refused, "flush udp": record.Rejected,
	"drop tcp": record.Delayed, "drop udp": record.ReplyTimeout,
	"half-sync tcp": record.Rejected, "half-sync udp": record.Rejected,
	"wrong-backend tcp": record.Misrouted, "wrong-backend udp": record.Misrouted,
}

var _ = Describe("a proxier that flushes, drops, syncs partly and uses a wrong pod, each for a short time on one node", func() {
	It("logs all faults, for both protocols", func() {
		result, history := failed(restarted)
		var done []string
		for _, t := range loggedFaults(result, history) {
			done = append(done, t.kind+" "+t.protocol)
		}
		Expect(done).To(ConsistOf(slices.Collect(maps.Keys(faultClass))))
	})

	for protocol, name := range map[string]string{"tcp": "tcp-new", "udp": "udp-fresh"} {
		It("has one outage per fault on lane "+name+", with class, node, backend and bounds, and no others", func() {
			result, history := failed(restarted)
			l := suites.LaneOf(result.Report, name)
			found := 0
			for _, t := range loggedFaults(result, history) {
				if t.protocol != protocol {
					continue
				}
				met := slices.DeleteFunc(slices.Clone(l.Outages), func(o analysis.OutageReport) bool { return !t.meets(o) })
				Expect(met).To(HaveLen(1), "%s; the outages are %+v", t, l.Outages)
				found++
				expectOutage(t, met[0], history, l)
			}
			Expect(l.Outages).To(HaveLen(found), "the other outages have no fault")
		})
	}

	It("has no outage of a UDP flow for faults on other nodes", func() {
		result, history := failed(restarted)
		l := suites.LaneOf(result.Report, "udp-sticky")
		Expect(l.Paths).To(HaveLen(1))
		Expect(l.Outages).NotTo(BeEmpty()) // on each node a fault removes the flow's real server
		for _, o := range l.Outages {
			Expect(o.Node).To(Equal(l.Paths[0].Node), "%+v", o)
			Expect(slices.ContainsFunc(loggedFaults(result, history), func(t fault) bool { return t.protocol == "udp" && t.meets(o) })).To(BeTrue(), "%+v", o)
		}
	})
})

// edges is the number of attempts of an outage that may have another class, because they met the fault's begin or end.
const edges = 2

func expectOutage(t fault, o analysis.OutageReport, history *record.History, l analysis.LaneReport) {
	GinkgoHelper()
	Expect(o.LowerMs).To(BeNumerically("<=", t.most), "%s", t)
	Expect(o.UpperMs).To(BeNumerically(">=", t.least), "%s", t)
	Expect(o.UpperMs-o.LowerMs).To(BeNumerically("<=", 12*1000/l.Rate), "%s: bounds %v to %v", t, o.LowerMs, o.UpperMs)
	Expect(o.Cause.Event).To(Equal("proxy exited"), "%s: %+v", t, o.Cause)
	Expect(o.Cause.Text).To(HavePrefix("the proxy on "+t.node+" "), "%s", t)
	class := faultClass[t.kind+" "+t.protocol]
	Expect(o.Classes[class.String()]).To(BeNumerically(">=", max(1, o.Failed()-edges)), "%s: %v", t, o.Classes)
	if class == record.Misrouted {
		Expect(o.Backend).To(HavePrefix("canary-"), "%s", t)
		return
	}
	Expect(o.Backend).To(Equal(podOn(history, t.node)), "%s", t)
}

var _ = Describe("the proof of the detector", func() {
	It("injects each kind of fault that the lanes can meet, and finds it with class, node and bounds", suites.Smoke, func() {
		result, _ := failed(restarted)
		for _, kind := range []string{record.ProtocolNew, record.ProtocolFresh, record.ProtocolSticky} {
			expectProved(result.Report, kind)
		}
	})
})

// deadNodes are the nodes whose proxies do not follow changes, by the report of a failed run without losses.
func deadNodes(f *suites.Future) (nodes []string) {
	GinkgoHelper()
	result, _ := failed(f)
	Expect(result.Report.Totals.Dropped + result.Report.Totals.Delayed).To(BeZero())
	for _, n := range result.Report.Recovery.Nodes {
		if n.State == analysis.RecoveryFailed {
			Expect(n.Since).NotTo(BeNil(), "%+v", n)
			nodes = append(nodes, n.Node)
		}
	}
	return nodes
}

var _ = Describe("a proxier that is healthy after its restart, and changes nothing", func() {
	It("fails the run without a lost connection, and the report says since when it follows no change", suites.Smoke, func() {
		Expect(deadNodes(dead)).To(Equal([]string{"node-1"}))
		result, history := failed(dead)
		var started float64
		for e, err := range history.Events() {
			Expect(err).NotTo(HaveOccurred())
			if b, is := e.Body.(record.Proxy); is && b.State == record.ProxyStarted && e.Node == "node-1" {
				started = e.At.Seconds()
			}
		}
		Expect(*result.Report.Recovery.Nodes[0].Since).To(BeNumerically("~", started, 0.1))
	})

	It("fails with other seeds", suites.Nightly, func() {
		for _, f := range deadSeeds {
			Expect(deadNodes(f)).To(Equal([]string{"node-1", "node-2", "node-3"}))
		}
	})

	It("fails in namespaces of the host", suites.Host, func() {
		_, _, err := onHost.Wait()
		if refused := new(host.RefusedError); errors.As(err, &refused) {
			Skip("this machine grants no namespaces: " + refused.Error())
		}
		Expect(deadNodes(onHost)).To(Equal([]string{"node-1", "node-2"}))
	})
})

// closing reports whether an outage is one attempt that met the closed socket of a process before its exit is recorded. No reading of a
// table can show yet that the proxier kept the pod.
func closing(all []exit, o analysis.OutageReport) bool {
	return o.Failed() == 1 && slices.ContainsFunc(all, func(p exit) bool { return o.From > p.at-0.02 && o.From < p.at })
}

var _ = Describe("a proxier that does not delete real servers", func() {
	It("drops new connections on the node with the stale backend, from when the first pod exits, and the report names that pod", func() {
		result, history := failed(stale)
		first := exits(history)[0]
		outages := suites.LaneOf(result.Report, "tcp-new").Outages
		Expect(outages).NotTo(BeEmpty())
		known := 0
		for _, o := range outages {
			Expect(o.Node).To(Equal("node-2"))
			Expect(o.From).To(BeNumerically(">=", first.at-0.1))
			if closing(exits(history), o) {
				continue
			}
			Expect(o.Cause.Text).To(ContainSubstring(" kept "), "%+v", o)
			if len(o.Chosen) > 0 { // the backend of the last attempts is unknown when the run ends before conntrack is read
				known++
				Expect(o.Cause.Event).To(Equal("pod exited"), "%+v", o)
			}
		}
		Expect(known).To(BeNumerically(">", len(outages)/2))
		Expect(outages[0].Cause.Text).To(ContainSubstring(first.pod))
	})

	It("has most outages after the exits", func() {
		result, history := failed(stale)
		outages := suites.LaneOf(result.Report, "tcp-new").Outages
		edges := 0
		for _, o := range outages {
			if closing(exits(history), o) {
				edges++
			}
		}
		Expect(edges).To(BeNumerically("<=", len(outages)/4), "%+v", outages)
	})

	It("keeps sending the UDP flow to the exited pod, until the lane ends", func() {
		result, history := failed(stale)
		l := suites.LaneOf(result.Report, "udp-sticky")
		Expect(l.Paths).To(HaveLen(1))
		Expect(l.Outages).To(HaveLen(1), "%+v", l.Outages)
		o := l.Outages[0]
		Expect(o.Node).To(Equal(l.Paths[0].Node))
		pods := exits(history)
		i := slices.IndexFunc(pods, func(p exit) bool { return p.pod == o.Backend })
		Expect(i).To(BeNumerically(">=", 0), "the backend %s must be an exited pod: %+v", o.Backend, pods)
		Expect(o.From).To(BeNumerically("~", pods[i].at, 0.2))
		Expect(o.Cause.Text).To(ContainSubstring("it lasted until the lane ended"))
	})
})

var _ = Describe("a health check that still passes without a local endpoint", func() {
	It("keeps the node of the exited pod in the load balancer: one outage there until the lane ends", func() {
		result, history := failed(wrongHealth)
		l := suites.LaneOf(result.Report, "tcp-new")
		pods := exits(history)
		Expect(pods).To(HaveLen(1), "one rollout of one pod")
		Expect(l.Outages).To(HaveLen(1), "%+v", l.Outages)
		o := l.Outages[0]
		Expect(o.Node).To(Equal(pods[0].node))
		Expect(o.Backend).To(Equal(pods[0].pod))
		Expect(o.From).To(BeNumerically("~", pods[0].at, 0.5))
		Expect(o.LowerMs).To(BeNumerically(">=", 29_000))
		Expect(o.Classes).To(HaveKey(record.ConnectTimeout.String()))
		Expect(o.Cause.Text).To(ContainSubstring(pods[0].pod))
		Expect(o.Cause.Text).To(ContainSubstring("it lasted until the lane ended"))
	})
})

// exit is the exit of a pod of the measured Service; at is in seconds.
type exit struct {
	pod, node string
	at        float64
}

func exits(history *record.History) (all []exit) {
	GinkgoHelper()
	for e, err := range history.Events() {
		Expect(err).NotTo(HaveOccurred())
		if b, is := e.Body.(record.Pod); is && b.State == record.PodExited && strings.HasPrefix(b.Pod, "web-") {
			all = append(all, exit{b.Pod, b.Node, e.At.Seconds()})
		}
	}
	return all
}

//go:build lab

// Package targets tests proxies without a load balancer: at a node port, and at a cluster IP from within the
// cluster.
package targets

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
	"github.com/hitless/hitless/suites/faulty"
)

func TestTargets(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "targets")
}

var _ = BeforeSuite(func() { DeferCleanup(suites.RemoveProgram) })

// target is the address and the start of lanes as parameters, with the subject of the run.
type target struct {
	subject string
	set     map[string]string
}

var (
	nodePort  = map[string]string{"target": "nodePort", "trafficPolicy": "Cluster"}
	clusterIP = map[string]string{"target": "clusterIP", "client": "node", "direct": "on"}
)

// rate is in attempts per second on each lane. It is low because outages by a restart or empty tables last for hundreds of milliseconds.
const rate = 20

// begin starts a run of the scenario for each target.
func begin(scenario string, targets map[string]target, more map[string]string) suites.Runs {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	dir, runs := GinkgoT().TempDir(), suites.Runs{}
	for name, p := range targets {
		set := map[string]string{"lanes": "tcp-new,tcp-long", "baseline": "10s", "settle": "10s"}
		for _, all := range []map[string]string{p.set, more} {
			for key, value := range all {
				set[key] = value
			}
		}
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: scenario, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: p.subject}, Seed: 1, Rate: rate, Set: set})
	}
	return runs
}

// rejecting describes the bundled proxier with a fault: after a restart node-1 rejects connections to the cluster IP for 700 ms.
func rejecting() (file string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	program, file := filepath.Join(dir, "faulty"), filepath.Join(dir, "rejecting.yaml")
	Expect(suites.Build(faulty.Package, program)).To(Succeed())
	const fault = "node-1:rule:0s:700ms:output ip daddr 10.96.0.10 tcp dport 80 reject with tcp reset"
	Expect(faulty.Write(file, "rejecting", program, []string{fault}, []string{"--after-restart"})).To(Succeed())
	return file
}

var _ = Describe("a restart of each proxy", Ordered, ContinueOnFailure, func() {
	var runs suites.Runs
	BeforeAll(func() {
		targets := map[string]target{"bundled": {"bundled", clusterIP}}
		if suites.RunsUnlabeled() {
			targets["rejecting"] = target{"exec:" + rejecting(), clusterIP}
		}
		if suites.Selected(suites.Nightly) {
			targets["kube-proxy"] = target{"kube-proxy@v1.37.1/ipvs", nodePort}
		}
		runs = begin("restart", targets, nil)
	})

	It("drops no connection from a node to a cluster IP with the bundled proxier", suites.Smoke, func() {
		Expect(suites.CheckLossless(runs.Report("bundled"))).To(Succeed())
	})

	It("drops connections of that node to a cluster IP with a proxier that rejects them when it starts again, the red twin", func() {
		Expect(outage(runs.Report("rejecting"), record.ProxyExited)).To(tellOfPods)
	})

	It("drops no connection from outside to a node port with kube-proxy v1.37.1 in mode ipvs", suites.Nightly, func() {
		Expect(suites.CheckLossless(runs.Report("kube-proxy"))).To(Succeed())
	})
})

// More red twins: the same lanes drop connections when the tables of their node are empty, and the report names the cause.
var _ = Describe("a node whose tables are empty", Ordered, ContinueOnFailure, suites.Nightly, func() {
	var runs suites.Runs
	BeforeAll(func() {
		targets := map[string]target{"kube-proxy": {"kube-proxy@v1.37.1/ipvs", clusterIP}, "bundled": {"bundled", nodePort}}
		runs = begin("fault", targets, map[string]string{"node": "node-1"})
	})

	It("drops connections from outside to its node port", func() { outage(runs.Report("bundled"), record.ProxyFlushed) })

	It("drops connections from that node to a cluster IP, while the pods answer at their own addresses", func() {
		Expect(outage(runs.Report("kube-proxy"), record.ProxyFlushed)).To(tellOfPods)
	})
})

// tellOfPods matches an outage during which all pods answered at their own addresses.
var tellOfPods = And(HaveField("Pods", HaveLen(3)), HaveField("Cause.Text", ContainSubstring("all of 3 pods answered at their own addresses all the while")))

// outage returns the outage of new connections, which must be on node-1, as long as the fault and by this event of its proxy.
func outage(r *analysis.Report, event record.ProxyState) analysis.OutageReport {
	GinkgoHelper()
	Expect(r.Verdict).To(Equal(analysis.Fail))
	Expect(suites.LaneOf(r, record.ProtocolLong).Outages).NotTo(BeEmpty()) // the node answers their requests with RST
	l := suites.LaneOf(r, record.ProtocolNew)
	Expect(l.Outages).To(HaveLen(1))
	o := l.Outages[0]
	Expect(o.Node).To(Equal("node-1"))
	Expect(o.LowerMs).To(BeNumerically("<=", 730))
	Expect(o.UpperMs).To(BeNumerically(">=", 700))
	Expect(o.Cause.Event).To(Equal("proxy " + string(event)))
	return o
}

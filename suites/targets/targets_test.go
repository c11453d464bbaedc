//go:build lab

// Package targets tests proxies without a load balancer: at a node port, and at a cluster IP from within the
// cluster.
package targets

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/suites"
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
func begin(scenario string, targets map[string]target, more map[string]string) map[string]*suites.Future {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	dir, runs := GinkgoT().TempDir(), map[string]*suites.Future{}
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

func reportOf(f *suites.Future) *analysis.Report {
	GinkgoHelper()
	result, _, err := f.Wait()
	Expect(err).NotTo(HaveOccurred())
	Expect(result.Report.Verdict).NotTo(Equal(analysis.Invalid), "%v", result.Report.Reasons)
	return result.Report
}

var _ = Describe("a restart of each proxy", Ordered, func() {
	var runs map[string]*suites.Future
	BeforeAll(func() {
		targets := map[string]target{"bundled": {"bundled", clusterIP}}
		if suites.Selected(suites.Nightly) {
			targets["kube-proxy"] = target{"kube-proxy@v1.37.1/ipvs", nodePort}
		}
		runs = begin("restart", targets, nil)
	})

	It("drops no connection from a node to a cluster IP with the bundled proxier", suites.Smoke, func() {
		Expect(reportOf(runs["bundled"]).Verdict).To(Equal(analysis.Pass))
	})

	It("drops no connection from outside to a node port with kube-proxy v1.37.1 in mode ipvs", suites.Nightly, func() {
		Expect(reportOf(runs["kube-proxy"]).Verdict).To(Equal(analysis.Pass))
	})
})

// The red twins: the same lanes drop connections when the tables of their node are empty, and the report names the cause.
var _ = Describe("a node whose tables are empty", Ordered, ContinueOnFailure, func() {
	var runs map[string]*suites.Future
	BeforeAll(func() {
		targets := map[string]target{}
		if suites.RunsUnlabeled() {
			targets["kube-proxy"] = target{"kube-proxy@v1.37.1/ipvs", clusterIP}
		}
		if suites.Selected(suites.Nightly) {
			targets["bundled"] = target{"bundled", nodePort}
		}
		runs = begin("fault", targets, map[string]string{"node": "node-1"})
	})

	// outage returns the outage of new connections, which must be on node-1 and as long as the fault.
	outage := func(r *analysis.Report) analysis.OutageReport {
		GinkgoHelper()
		Expect(r.Verdict).To(Equal(analysis.Fail))
		open, err := suites.FindLane(r, "tcp-long")
		Expect(err).NotTo(HaveOccurred())
		Expect(open.Outages).NotTo(BeEmpty()) // without the table the node answers their requests with RST
		for _, l := range r.Lanes {
			if l.Name != "tcp-new" {
				continue
			}
			Expect(l.Outages).To(HaveLen(1))
			o := l.Outages[0]
			Expect(o.Node).To(Equal("node-1"))
			Expect(o.LowerMs).To(BeNumerically("<=", 730))
			Expect(o.UpperMs).To(BeNumerically(">=", 700))
			Expect(o.Cause.Event).To(Equal("proxy flushed"))
			return o
		}
		Fail("the report has no lane tcp-new")
		return analysis.OutageReport{}
	}

	It("drops connections from outside to its node port", suites.Nightly, func() { outage(reportOf(runs["bundled"])) })

	It("drops connections from that node to a cluster IP, while the pods answer at their own addresses", func() {
		o := outage(reportOf(runs["kube-proxy"]))
		Expect(o.Pods).To(HaveLen(3))
		Expect(o.Cause.Text).To(ContainSubstring("all of 3 pods answered at their own addresses all the while"))
	})
})

//go:build lab

// Package targets tests proxies without a load balancer: at a node port, and at a cluster IP from within the
// cluster.
package targets

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestTargets(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "targets")
}

var _ = BeforeSuite(func() { DeferCleanup(suites.RemoveProgram) })

// place is where lanes start and go, with the subject that serves them there.
type place struct {
	subject string
	set     map[string]string
}

var (
	nodePort  = map[string]string{"target": "nodePort", "trafficPolicy": "Cluster"}
	clusterIP = map[string]string{"target": "clusterIP", "client": "node", "direct": "on"}
)

// rate is in attempts a second on each lane: what a restart or empty tables cost lasts for hundreds of milliseconds. The windows are short
// because the time of a run is that of its attempts.
const rate = 20

// begin starts a run of the scenario at each of the places.
func begin(scenario string, places map[string]place, more map[string]string) map[string]*suites.Future {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	dir, runs := GinkgoT().TempDir(), map[string]*suites.Future{}
	for name, p := range places {
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

func reportOf(f *suites.Future) *reports.Report {
	GinkgoHelper()
	result, _, err := f.Wait()
	Expect(err).NotTo(HaveOccurred())
	Expect(result.Report.Verdict).NotTo(Equal(reports.Invalid), "%v", result.Report.Reasons)
	return result.Report
}

var _ = Describe("a restart of each proxy", Ordered, func() {
	var runs map[string]*suites.Future
	BeforeAll(func() {
		at := map[string]place{"bundled": {"bundled", clusterIP}}
		if suites.Selected(suites.Nightly) {
			at["kube-proxy"] = place{"kube-proxy@v1.37.1/ipvs", nodePort}
		}
		runs = begin("restart", at, nil)
	})

	It("costs nothing at a cluster IP, asked from a node, with the bundled proxier", suites.Smoke, func() {
		Expect(reportOf(runs["bundled"]).Verdict).To(Equal(reports.Pass))
	})

	It("costs nothing at a node port, asked from outside, with kube-proxy v1.37.1 in mode ipvs", suites.Nightly, func() {
		Expect(reportOf(runs["kube-proxy"]).Verdict).To(Equal(reports.Pass))
	})
})

// The red twins: the same lanes see it when the tables of the one node that they go over are empty, and say whose loss it is.
var _ = Describe("a node whose tables are empty", suites.Nightly, Ordered, ContinueOnFailure, func() {
	var runs map[string]*suites.Future
	BeforeAll(func() {
		runs = begin("fault", map[string]place{"bundled": {"bundled", nodePort}, "kube-proxy": {"kube-proxy@v1.37.1/ipvs", clusterIP}},
			map[string]string{"node": "node-1"})
	})

	// lost is the outage of new connections, which must be the node's and as long as the fault.
	lost := func(r *reports.Report) reports.OutageReport {
		GinkgoHelper()
		Expect(r.Verdict).To(Equal(reports.Fail))
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
		Fail("there is no lane of new connections")
		return reports.OutageReport{}
	}

	It("is found at its node port, from outside", func() { lost(reportOf(runs["bundled"])) })

	It("is found at a cluster IP, from that node, and the pods say that it is the proxy's loss", func() {
		o := lost(reportOf(runs["kube-proxy"]))
		Expect(o.Pods).To(HaveLen(3))
		Expect(o.Cause.Text).To(ContainSubstring("all of 3 pods answered at their own addresses all the while"))
	})
})

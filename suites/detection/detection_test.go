//go:build lab

// Package detection tests the detector: each injected fault must be found with its node, class and length.
package detection

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

func TestDetection(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "detection")
}

var flushed, undisturbed *suites.Future

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	flushed = suites.Start(ctx, dir, "flushed", run.Options{Scenario: "fault", LabOptions: site.LabOptions{ControlPlane: "replay"}, Seed: 1,
		Set: map[string]string{"node": "node-2", "faultDuration": "700ms", "baseline": "10s"}})
	if !suites.RunsUnlabeled() {
		return
	}
	undisturbed = suites.Start(ctx, dir, "undisturbed", run.Options{Scenario: "quiet", LabOptions: site.LabOptions{ControlPlane: "replay"}, Seed: 1,
		Set: map[string]string{"replicas": "3"}})
})

// report is the report of a run whose paths are those of the load balancer.
func report(f *suites.Future) *analysis.Report {
	GinkgoHelper()
	result, history := f.Finished()
	Expect(analysis.CheckPaths(history)).To(Succeed())
	return result.Report
}

var _ = Describe("an IPVS table that is empty for 700 ms", func() {
	It("is one outage on that node's path, whose bounds contain 700 ms and are at most three intervals apart", suites.Smoke, func() {
		r := report(flushed)
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		Expect(r.Lanes[0].Outages).To(HaveLen(1))
		o := r.Lanes[0].Outages[0]
		Expect(o.Node).To(Equal("node-2"))
		Expect(o.LowerMs).To(BeNumerically("<=", 700))
		Expect(o.UpperMs).To(BeNumerically(">=", 700))
		Expect(o.Cause.Event).To(Equal("proxy flushed"), "%+v", o)
		interval := 1000 / pathRate(r, "node-2")
		Expect(o.UpperMs - o.LowerMs).To(BeNumerically("<=", 3*interval))
	})

	It("drops no attempt on the paths of other nodes", func() {
		paths := report(flushed).Lanes[0].Paths
		Expect(paths).To(HaveLen(3))
		for _, p := range paths {
			if p.Node != "node-2" {
				Expect(p.Attempts).To(BeNumerically(">", 0))
				Expect(p.Dropped).To(BeZero(), p.Node)
			}
		}
	})
})

var _ = Describe("a run without a disturbance", func() {
	It("passes, and reports a detection floor of at most 40 ms", func() {
		r := report(undisturbed)
		Expect(r.Verdict).To(Equal(analysis.Pass), "%v", r.Reasons)
		Expect(r.DetectionFloor.Found).To(Equal(r.DetectionFloor.Injected))
		Expect(r.DetectionFloor.Injected).NotTo(BeEmpty())
		Expect(*r.DetectionFloor.Ms).To(BeNumerically("<=", 40))
	})
})

// pathRate returns the attempts per second that went over a node.
func pathRate(r *analysis.Report, node string) float64 {
	GinkgoHelper()
	for _, p := range r.Lanes[0].Paths {
		if p.Node == node {
			return r.Lanes[0].Rate * float64(p.Attempts) / float64(r.Lanes[0].Attempts)
		}
	}
	Fail("no path over " + node)
	return 0
}

//go:build lab

// Package drain tests what happens to connections when a node is scaled down, drained, loses power or reboots, and that reports name
// a cause other than the proxy.
package drain

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

func TestDrain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "drain")
}

// ignoresTaint is a kube-proxy that ignores the autoscaler's taint: KEP-3836 came with v1.28.
const ignoresTaint = "kube-proxy@v1.26.0/iptables"

// rate is low, in attempts per second, because the outages last for seconds and attempts determine the duration of a run.
const rate = 30

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	begin := func(name, scenario, subject string, set map[string]string) {
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: scenario, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}, Seed: 1, Rate: rate, Set: set})
	}
	scaledown := map[string]string{"what": "scaledown", "off": "25s", "settle": "5s"}
	begin("scaledown", "drain", "bundled", scaledown)
	if suites.RunsUnlabeled() {
		begin("scaledown ignores taint", "drain", ignoresTaint, scaledown)
	}
	if suites.Selected(suites.Nightly) {
		begin("drain", "drain", "bundled", map[string]string{"trafficPolicy": "Local", "off": "20s"})
		begin("reboot", "drain", "bundled", map[string]string{"what": "reboot"})
		begin("stale allow", "interference", "bundled", map[string]string{"what": "stale-allow"})
	}
})

var _ = Describe("a node without pods that the autoscaler removes (KEP-3836)", func() {
	It("drops no connection when its proxy fails the health checks while it still forwards", suites.Smoke, func() { Expect(suites.CheckLossless(runs.Report("scaledown"))).To(Succeed()) })

	It("drops connections until the load balancer removes it, when its proxy passes the health checks", func() {
		r := runs.Report("scaledown ignores taint")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		Expect(r.Lanes[0].Outages).To(HaveLen(1))
		o := r.Lanes[0].Outages[0]
		Expect(o.From).To(BeNumerically("~", suites.TimeOf(r, 0, record.KindNode, o.Node, o.Node+" lost power"), 0.5))
		Expect(o.LowerMs).To(BeNumerically(">=", 9_500), "three checks of 5 s each, the first up to 5 s later")
		Expect(o.UpperMs).To(BeNumerically("<=", 21_000))
		Expect(o.Cause.Event).To(Equal("node off"), "%+v", o.Cause)
		Expect(r.Unexplained.Count).To(BeZero())
	})
})

var _ = Describe("a node that is drained, behind externalTrafficPolicy: Local", suites.Nightly, func() {
	It("drops no connection", func() { Expect(suites.CheckLossless(runs.Report("drain"))).To(Succeed()) })
})

var _ = Describe("a node that loses power and boots again", suites.Nightly, func() {
	It("drops connections only before it boots again", func() {
		r := runs.Report("reboot")
		Expect(r.Verdict).To(Equal(analysis.Pass), "no proxy can prevent this loss: %v", r.Reasons)
		Expect(r.ExcusedAttempts()).To(Equal(r.Totals.Dropped + r.Totals.Delayed))
		boots := suites.TimeOf(r, 0, record.KindNode, "node-1", "node-1 boots")
		Expect(r.Lanes[0].Outages).NotTo(BeEmpty())
		for _, o := range r.Lanes[0].Outages {
			Expect(o.To).To(BeNumerically("<", boots), "%+v", o)
			Expect(o.Cause.Event).To(Equal("node off"), "%+v", o)
		}
	})
})

var _ = Describe("the removal of a stale allow rule, without which a network policy is missing", suites.Nightly, func() {
	It("is the cause in the report, with the rule and the node", func() {
		r := runs.Report("stale allow")
		Expect(r.Verdict).To(Equal(analysis.Pass), "no proxy can prevent this loss: %v", r.Reasons)
		Expect(r.Excused).To(HaveLen(1))
		Expect(r.Lanes[0].Outages).To(HaveLen(1))
		o := r.Lanes[0].Outages[0]
		Expect(o.Node).To(Equal("node-1"))
		Expect(o.Cause.Event).To(Equal("foreign begin"))
		Expect(o.Cause.Text).To(HavePrefix("the stale allow `table inet stale-policy { ip daddr { 10.244.1."), "%+v", o.Cause)
		Expect(o.LowerMs).To(BeNumerically("~", 10_000, 2_000))
	})
})

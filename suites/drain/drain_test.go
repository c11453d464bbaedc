//go:build lab

// Package drain promises what becomes of connections when a node goes: by the autoscaler, by eviction, by a power cut, by a
// reboot; and what a report says when it was not the proxy.
package drain

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestDrain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "drain")
}

// unmarked is a kube-proxy that takes no notice of the autoscaler's mark (KEP-3836 came with v1.28).
const unmarked = "kube-proxy@v1.26.0/iptables"

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	begin := func(name, scenario, subject string, set map[string]string) {
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: scenario, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}, Seed: 1, Set: set})
	}
	marked := map[string]string{"what": "scaledown", "off": "25s", "settle": "5s"}
	begin("scaledown", "drain", "bundled", marked)
	if suites.RunsUnlabeled() {
		begin("scaledown unmarked", "drain", unmarked, marked)
	}
	if suites.Selected(suites.Nightly) {
		begin("drain", "drain", "bundled", map[string]string{"trafficPolicy": "Local", "off": "20s"})
		begin("reboot", "drain", "bundled", map[string]string{"what": "reboot"})
		begin("stale allow", "interference", "bundled", map[string]string{"what": "stale-allow"})
	}
})

// when is the time of the first event of the kind.
func when(r *reports.Report, kind record.Kind, text string) float64 {
	GinkgoHelper()
	for _, e := range r.Events {
		if e.Kind == kind && e.Text == text {
			return e.At
		}
	}
	Fail("no event tells: " + text)
	return 0
}

func dropsNothing(name string) {
	GinkgoHelper()
	Expect(suites.CheckLossless(runs.Report(name))).To(Succeed())
}

var _ = Describe("a node without pods that the autoscaler removes (KEP-3836)", func() {
	It("costs no connection: its proxy fails the health checks while it still forwards", suites.Smoke, func() { dropsNothing("scaledown") })

	It("costs what goes over it until the balancer finds out, when its proxy does not", func() {
		r := runs.Report("scaledown unmarked")
		Expect(r.Verdict).To(Equal(reports.Fail), "%v", r.Reasons)
		Expect(r.Lanes[0].Outages).To(HaveLen(1))
		o := r.Lanes[0].Outages[0]
		Expect(o.From).To(BeNumerically("~", when(r, record.KindNode, o.Node+" lost power"), 0.5))
		Expect(o.LowerMs).To(BeNumerically(">=", 9_500), "three checks of 5 s each, the first up to 5 s later")
		Expect(o.UpperMs).To(BeNumerically("<=", 21_000))
		Expect(o.Cause.Event).To(Equal("node off"), "%+v", o.Cause)
		Expect(r.Unexplained.Count).To(BeZero())
	})
})

var _ = Describe("a node that is drained, behind externalTrafficPolicy: Local", suites.Nightly, func() {
	It("costs no connection", func() { dropsNothing("drain") })
})

var _ = Describe("a node that loses power and boots again", suites.Nightly, func() {
	It("costs connections until it is known, and none from when it boots", func() {
		r := runs.Report("reboot")
		boots := when(r, record.KindNode, "node-1 boots")
		Expect(r.Lanes[0].Outages).NotTo(BeEmpty())
		for _, o := range r.Lanes[0].Outages {
			Expect(o.To).To(BeNumerically("<", boots), "%+v", o)
			Expect(o.Cause.Event).To(Equal("node off"), "%+v", o)
		}
	})
})

var _ = Describe("a stale allow that is cleaned up, and had hidden a missing policy", suites.Nightly, func() {
	It("is the cause that the report names, with its rule and its node, and not the proxy", func() {
		r := runs.Report("stale allow")
		Expect(r.Lanes[0].Outages).To(HaveLen(1))
		o := r.Lanes[0].Outages[0]
		Expect(o.Node).To(Equal("node-1"))
		Expect(o.Cause.Event).To(Equal("foreign begin"))
		Expect(o.Cause.Text).To(HavePrefix("the stale allow `table inet stale-policy { ip daddr { 10.244.1."), "%+v", o.Cause)
		Expect(o.LowerMs).To(BeNumerically("~", 10_000, 2_000))
	})
})

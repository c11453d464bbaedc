//go:build lab

package subjects

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/suites"
)

// startHAProxy starts the same rollout behind HAProxy.
func startHAProxy(ctx context.Context, dir, version, fallback string) *suites.Future {
	return roll(ctx, dir, version, fallback, "haproxy")
}

var _ = Describe("kubernetes#85643 behind HAProxy, which terminates connections", func() {
	It("drops connections with kube-proxy v1.25.3: one outage, as long as three health checks", func() {
		name := "1.25.3 HAProxy"
		expectBug(name)
		outages := runs.Report(name).Lanes[0].Outages
		Expect(outages).To(HaveLen(1), "successful attempts over the new node do not split the old node's outage")
		for _, o := range outages {
			Expect(o.Node).NotTo(BeEmpty(), "HAProxy's log names the node of attempts without an answer")
			Expect(o.UpperMs-o.LowerMs).To(BeNumerically("<", 200), "the bounds are close because each node gets its share of the attempts")
			Expect(o.Cause.Text).To(And(HavePrefix("the only local pod web-"), ContainSubstring(o.Node+" failed its health checks from"),
				ContainSubstring("on (503)")), "the cause contains the pod and the failed health checks")
		}
	})
	It("drops and delays no connection with kube-proxy v1.26.0", func() { Expect(suites.CheckLossless(runs.Report("1.26.0 HAProxy"))).To(Succeed()) })
	It("drops and delays no connection with v1.25.3 and the feature gate on", suites.Nightly, func() { Expect(suites.CheckLossless(runs.Report("1.25.3 with, HAProxy"))).To(Succeed()) })
	It("drops connections with v1.26.0 and the feature gate off", suites.Nightly, func() { expectBug("1.26.0 without, HAProxy") })
	It("has the same path for each answer in HAProxy's log and in the answer", func() {
		for _, name := range []string{"1.25.3 HAProxy", "1.26.0 HAProxy"} {
			_, history := runs[name].Finished()
			Expect(analysis.CheckPaths(history)).To(Succeed())
		}
	})
})

//go:build lab

package subjects

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

// startHAProxy begins the same rollout behind the real HAProxy, which is what the second seed was seen with.
func startHAProxy(ctx context.Context, dir, version, fallback string) *suites.Future {
	return roll(ctx, dir, version, fallback, "haproxy")
}

var _ = Describe("kubernetes#85643 behind HAProxy, which terminates connections", func() {
	It("drops with kube-proxy v1.25.3: in each rollout one outage, as long as three health checks take", func() {
		name := "1.25.3 HAProxy"
		drops(name)
		outages := report(name).Lanes[0].Outages
		Expect(outages).To(HaveLen(2), "good attempts on the new node do not split the old node's outage")
		for _, o := range outages {
			Expect(o.Node).NotTo(BeEmpty(), "HAProxy's log tells the node of attempts without an answer")
			Expect(o.UpperMs-o.LowerMs).To(BeNumerically("<", 200), "each node gets its share of the attempts")
			Expect(o.Cause.Text).To(And(HavePrefix("the only local pod web-"), ContainSubstring(o.Node+" failed its health checks from"),
				ContainSubstring("on (503)")), "the whole chain of causes is told")
		}
	})
	It("drops and delays nothing with kube-proxy v1.26.0", func() { dropsNothing("1.26.0 HAProxy") })
	It("drops nothing with v1.25.3 and the feature gate on", suites.Nightly, func() { dropsNothing("1.25.3 with, HAProxy") })
	It("drops with v1.26.0 and the feature gate off", suites.Nightly, func() { drops("1.26.0 without, HAProxy") })
	It("has proof of each path: HAProxy's log agrees with every answer", func() {
		for _, name := range []string{"1.25.3 HAProxy", "1.26.0 HAProxy"} {
			_, history, err := runs[name].Wait()
			Expect(err).NotTo(HaveOccurred())
			Expect(reports.CheckPaths(history)).To(Succeed())
		}
	})
})

//go:build lab

package subjects

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

// startChurn begins a run that shows the freeze of kubernetes#71071: 22 minutes in which the versions that have it froze at
// the third or an earlier one.
func startChurn(ctx context.Context, dir, version string) *suites.Future {
	GinkgoHelper()
	entry, err := museum.Find("k8s-71071")
	Expect(err).NotTo(HaveOccurred())
	set := map[string]string{"for": "22m"}
	maps.Copy(set, entry.Set)
	return suites.Begin(ctx, dir, "churn-"+version, run.Options{Scenario: entry.Scenario, ControlPlane: "replay", Seed: 1, Rate: 2,
		Nodes: 1, Subject: "kube-proxy@" + version + "/ipvs", Set: set})
}

var _ = Describe("kubernetes#71071: endpoints that change while others drain", Ordered, ContinueOnFailure, suites.Nightly, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		for _, version := range []string{"v1.12.2", "v1.12.4", "v1.12.5"} {
			runs["churn "+version] = startChurn(ctx, dir, version)
		}
	})

	DescribeTable("make a proxy stand still until it is restarted", func(version string, want museum.Answer) {
		f := finding("k8s-71071", "churn "+version)
		Expect(f.Answer).To(Equal(want), "%q", f.Reasons)
	},
		Entry("with kube-proxy v1.12.2", "v1.12.2", museum.Seen),
		Entry("with kube-proxy v1.12.4", "v1.12.4", museum.Seen),
		Entry("not with v1.12.5, which locks its netlink socket", "v1.12.5", museum.NotSeen),
	)
})

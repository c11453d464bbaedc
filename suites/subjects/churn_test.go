//go:build lab

package subjects

import (
	"context"
	"fmt"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

// bugSeeds are the seeds with which a version that has the bug must freeze. The bug is a race, so one seed could be a coincidence.
var bugSeeds = []int64{1, 2}

// startChurn starts a run of 22 minutes for the freeze of kubernetes#71071. Versions with the bug froze within the first five minutes.
func startChurn(ctx context.Context, dir, version string, seed int64) {
	GinkgoHelper()
	entry, err := museum.Find("k8s-71071")
	Expect(err).NotTo(HaveOccurred())
	set := map[string]string{"for": "22m"}
	maps.Copy(set, entry.Set)
	name := churnName(version, seed)
	runs[name] = suites.Start(ctx, dir, strings.ReplaceAll(name, " ", "-"), run.Options{Scenario: entry.Scenario, LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: 1, Subject: "kube-proxy@" + version + "/ipvs"},
		Seed: seed, Rate: 2, Set: set})
}

func churnName(version string, seed int64) string {
	return fmt.Sprintf("churn %s seed %d", version, seed)
}

var _ = Describe("kubernetes#71071: endpoints that change while others drain", Ordered, ContinueOnFailure, suites.Nightly, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		for _, version := range []string{"v1.12.2", "v1.12.4"} {
			for _, seed := range bugSeeds {
				startChurn(ctx, dir, version, seed)
			}
		}
		for _, version := range []string{"v1.12.1", "v1.12.5", "v1.13.2"} {
			startChurn(ctx, dir, version, 1)
		}
	})

	DescribeTable("freeze a proxy until it is restarted", func(version string) {
		for _, seed := range bugSeeds {
			f := finding("k8s-71071", churnName(version, seed))
			Expect(f.Answer).To(Equal(museum.Seen), "seed %d: %q", seed, f.Reasons)
		}
	},
		Entry("with kube-proxy v1.12.2", "v1.12.2"),
		Entry("with kube-proxy v1.12.4", "v1.12.4"),
	)

	DescribeTable("drop no connection", func(version string) {
		f := finding("k8s-71071", churnName(version, 1))
		Expect(f.Answer).To(Equal(museum.NotSeen), "%q", f.Reasons)
		Expect(runs.Report(churnName(version, 1)).Totals.Dropped).To(BeZero())
	},
		Entry("with v1.12.1, which has no graceful termination yet", "v1.12.1"),
		Entry("with v1.12.5, which locks its netlink socket", "v1.12.5"),
		Entry("with v1.13.2, which locks it too", "v1.13.2"),
	)
})

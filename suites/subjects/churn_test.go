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

// frozenBy are the seeds with which the versions that have the bug must freeze: a race that shows with one seed only may
// be an accident of that seed.
var frozenBy = []int64{1, 2}

// startChurn begins a run that shows the freeze of kubernetes#71071: 22 minutes in which the versions that have it froze at
// the fifth or an earlier one.
func startChurn(ctx context.Context, dir, version string, seed int64) {
	GinkgoHelper()
	entry, err := museum.Find("k8s-71071")
	Expect(err).NotTo(HaveOccurred())
	set := map[string]string{"for": "22m"}
	maps.Copy(set, entry.Set)
	name := churnOf(version, seed)
	runs[name] = suites.Start(ctx, dir, strings.ReplaceAll(name, " ", "-"), run.Options{Scenario: entry.Scenario, LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: 1, Subject: "kube-proxy@" + version + "/ipvs"},
		Seed: seed, Rate: 2, Set: set})
}

func churnOf(version string, seed int64) string {
	return fmt.Sprintf("churn %s seed %d", version, seed)
}

var _ = Describe("kubernetes#71071: endpoints that change while others drain", Ordered, ContinueOnFailure, suites.Nightly, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		for _, version := range []string{"v1.12.2", "v1.12.4"} {
			for _, seed := range frozenBy {
				startChurn(ctx, dir, version, seed)
			}
		}
		for _, version := range []string{"v1.12.1", "v1.12.5", "v1.13.2"} {
			startChurn(ctx, dir, version, 1)
		}
	})

	DescribeTable("make a proxy stand still until it is restarted", func(version string) {
		for _, seed := range frozenBy {
			f := finding("k8s-71071", churnOf(version, seed))
			Expect(f.Answer).To(Equal(museum.Seen), "seed %d: %q", seed, f.Reasons)
		}
	},
		Entry("with kube-proxy v1.12.2", "v1.12.2"),
		Entry("with kube-proxy v1.12.4", "v1.12.4"),
	)

	DescribeTable("do no harm", func(version string) {
		f := finding("k8s-71071", churnOf(version, 1))
		Expect(f.Answer).To(Equal(museum.NotSeen), "%q", f.Reasons)
		Expect(report(churnOf(version, 1)).Totals.Dropped).To(BeZero())
	},
		Entry("with v1.12.1, which has no graceful termination yet", "v1.12.1"),
		Entry("with v1.12.5, which locks its netlink socket", "v1.12.5"),
		Entry("with v1.13.2, which locks it too", "v1.13.2"),
	)
})

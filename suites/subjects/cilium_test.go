//go:build lab

package subjects

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/compile"
	"github.com/hitless/hitless/suites"
)

// ciliumRun is a run with Cilium: of a scenario with settings, or of a timeline in testdata.
type ciliumRun struct {
	subject, scenario, timeline string
	set                         map[string]string
}

// short are settings with little traffic before and after the scenario.
func short(more ...string) map[string]string {
	s := map[string]string{"baseline": "10s", "settle": "10s"}
	for i := 0; i < len(more); i += 2 {
		s[more[i]] = more[i+1]
	}
	return s
}

// Cilium passes rollouts from each place of a client. What must fail does, with its cause. The first build takes five minutes.
var _ = DescribeTable("Cilium", suites.Nightly, func(ctx SpecContext, c ciliumRun, want analysis.Verdict, cause string) {
	o := run.Options{Scenario: c.scenario, Set: c.set, Rate: 50, Seed: 1, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: c.subject}}
	if c.timeline != "" {
		line, err := run.ReadTimeline(ctx, filepath.Join("testdata", c.timeline))
		Expect(err).NotTo(HaveOccurred())
		o.Timeline = line
	}
	r := suites.Start(ctx, GinkgoT().TempDir(), "run", o).Report()
	Expect(r.Verdict).To(Equal(want), "%v", r.Reasons)
	if cause != "" {
		var causes []string
		for _, l := range r.Lanes {
			for _, outage := range l.Outages {
				causes = append(causes, outage.Cause.Text)
			}
		}
		Expect(causes).To(ContainElement(ContainSubstring(cause)))
	}
},
	Entry("passes a rollout, 1.15.19", ciliumRun{"cilium@1.15.19", "rollout", "", short("rollouts", "1")}, analysis.Pass, ""),
	Entry("fails it without terminating endpoints", ciliumRun{"cilium@1.15.19?enable-k8s-terminating-endpoint=false", "rollout", "", short("rollouts", "1")}, analysis.Fail, "in the BPF maps"),
	Entry("passes a rollout, 1.20.2", ciliumRun{"cilium@1.20.2", "rollout", "", short("rollouts", "1")}, analysis.Pass, ""),
	Entry("passes a rollout for a client on a node", ciliumRun{"cilium@1.15.19", "rollout", "", short("rollouts", "1", "client", "node", "trafficPolicy", "Cluster")}, analysis.Pass, ""),
	Entry("passes a rollout for a client in a pod", ciliumRun{"cilium@1.15.19", "rollout", "", short("rollouts", "1", "client", "pod", "trafficPolicy", "Cluster")}, analysis.Pass, ""),
	Entry("fails a restart after which its map of Services is empty", ciliumRun{"cilium@1.15.19", "", "emptied.timeline", nil}, analysis.Fail, "in the BPF maps"),
	Entry("resets open connections to pods that become unready, 1.15.19", ciliumRun{"cilium@1.15.19", "flap", "", short("watch", "70s")}, analysis.Fail, "unready"),
	Entry("keeps them, 1.20.2", ciliumRun{"cilium@1.20.2", "flap", "", short("watch", "70s")}, analysis.Pass, ""),
	Entry("refuses traffic after source ranges were removed, 1.15.19", ciliumRun{"cilium@1.15.19", "policy", "", short("between", "5s")}, analysis.Fail, "loadBalancerSourceRanges"),
	Entry("loses connections when the autoscaler removes a node, 1.20.2", ciliumRun{"cilium@1.20.2", "drain", "", short("what", "scaledown", "off", "25s")}, analysis.Fail, "lost power"),
	Entry("serves it, 1.20.2", ciliumRun{"cilium@1.20.2", "policy", "", short("between", "5s")}, analysis.Pass, ""),
)

// withoutObjects returns a cache that shares all with that of this machine but the BPF programs, which it does not have.
func withoutObjects() string {
	shared, err := cache.Dir()
	Expect(err).NotTo(HaveOccurred())
	own := GinkgoT().TempDir()
	for _, name := range []string{"build", "initramfs", "kernel", "snapshots", "tools"} {
		Expect(os.MkdirAll(filepath.Join(shared, name), 0o755)).To(Succeed())
		Expect(os.Symlink(filepath.Join(shared, name), filepath.Join(own, name))).To(Succeed())
	}
	return own
}

// Runs share the BPF programs in the cache. Those that another scenario has compiled must not change a history.
var _ = It("Cilium has the same history whatever other runs have compiled", suites.Nightly, func(ctx SpecContext) {
	history := func(in, name, scenario string, set map[string]string) string {
		o := run.Options{Scenario: scenario, Set: set, Rate: 50, Seed: 1, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: "cilium@1.20.2", Cache: in}}
		result, _ := suites.Start(ctx, GinkgoT().TempDir(), name, o).Finished()
		Expect(result.Report.Verdict).To(Equal(analysis.Pass), "%v", result.Report.Reasons)
		return result.HistorySha256
	}
	used := withoutObjects()
	history(used, "other", "policy", short("between", "5s"))
	compiled, err := compile.Entries(site.ObjectsDir(used))
	Expect(err).NotTo(HaveOccurred())
	Expect(compiled).NotTo(BeEmpty(), "the other scenario has compiled nothing")
	Expect(history(used, "after another scenario", "rollout", short("rollouts", "1"))).To(Equal(history(withoutObjects(), "alone", "rollout", short("rollouts", "1"))))
})

//go:build lab

package subjects

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

// buildExample copies the example of docs/subjects.md and builds its proxy. It returns their directory.
func buildExample() string {
	GinkgoHelper()
	const source = "../../docs/examples/exec-nftables"
	dir := GinkgoT().TempDir()
	Expect(os.CopyFS(dir, os.DirFS(source))).To(Succeed())
	Expect(suites.Build("github.com/hitless/hitless/docs/examples/exec-nftables", filepath.Join(dir, "exec-nftables"))).To(Succeed())
	return dir
}

var _ = Describe("a proxy that a subject file describes", Ordered, func() {
	var correct, forgetful *suites.Future

	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := buildExample()
		roll := func(file string) *suites.Future {
			return suites.Start(ctx, dir, file+"-run", run.Options{Scenario: "rollout", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: "exec:" + filepath.Join(dir, file)}, Seed: 1, Rate: 30,
				Set: map[string]string{"trafficPolicy": "Cluster", "rollouts": "1", "settle": "10s", "shutdownDelay": "5s", "gracePeriod": "10s"}})
		}
		correct = roll("subject.yaml")
		if suites.RunsUnlabeled() {
			forgetful = roll("forgetful.yaml")
		}
	})

	It("passes a rollout without a dropped connection", suites.Smoke, func() {
		r := correct.Report()
		Expect(suites.CheckLossless(r)).To(Succeed())
		Expect(r.Subject).To(Equal(record.Subject{Name: "exec-nftables", Version: "1", Mode: "nftables"}))
		Expect(r.Totals.OK).To(BeNumerically(">", 1000))
	})

	It("fails when it keeps a removed endpoint, and only after the pod has exited", func() {
		result, history := forgetful.Finished()
		Expect(result.Report.Verdict).To(Equal(analysis.Fail), "%v", result.Report.Reasons)
		ended := firstExit(history)
		Expect(result.Report.Lanes[0].Outages).NotTo(BeEmpty())
		for _, o := range result.Report.Lanes[0].Outages {
			Expect(o.From).To(BeNumerically(">=", ended-0.1), "%+v", o)
		}
	})
})

// firstExit returns when the first pod exited, in seconds.
func firstExit(history *record.History) float64 {
	GinkgoHelper()
	for e, err := range history.Events() {
		Expect(err).NotTo(HaveOccurred())
		if b, is := e.Body.(record.Pod); is && b.State == record.PodExited {
			return e.At.Seconds()
		}
	}
	Fail("no pod exited")
	return 0
}

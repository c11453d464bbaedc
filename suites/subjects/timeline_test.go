//go:build lab

package subjects

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

// The example timeline and the timeline that its failed run wrote both show the bug.
var _ = Describe("the timeline of k8s-71515", suites.Nightly, Ordered, func() {
	var dir string
	replay := func(ctx SpecContext, file, version string) *run.Result {
		GinkgoHelper()
		line, err := run.ReadTimeline(ctx, file)
		Expect(err).NotTo(HaveOccurred())
		result, _ := suites.Start(ctx, GinkgoT().TempDir(), version, run.Options{Timeline: line, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: "kube-proxy@" + version + "/ipvs"}}).Finished()
		return result
	}
	judge := func(result *run.Result) museum.Answer {
		GinkgoHelper()
		found := judged("k8s-71515", result)
		AddReportEntry("finding", found.Reasons)
		return found.Answer
	}
	BeforeAll(func() { dir = filepath.Join("..", "..", "docs", "examples") })

	It("shows the bug in v1.12.2, and so does the timeline that this run wrote", func(ctx SpecContext) {
		first := replay(ctx, filepath.Join(dir, "k8s-71515.timeline"), "v1.12.2")
		Expect(first.Report.Verdict).To(Equal(analysis.Fail))
		Expect(judge(first)).To(Equal(museum.Seen))
		second := replay(ctx, filepath.Join(first.Dir, "history", record.TimelineFile), "v1.12.2")
		Expect(second.Report.Verdict).To(Equal(analysis.Fail))
		Expect(judge(second)).To(Equal(museum.Seen))
	})
	It("does not show the bug in v1.12.4", func(ctx SpecContext) {
		result := replay(ctx, filepath.Join(dir, "k8s-71515.timeline"), "v1.12.4")
		Expect(result.Report.Verdict).To(Equal(analysis.Pass), "%v", result.Report.Reasons)
		Expect(judge(result)).To(Equal(museum.NotSeen))
	})
})

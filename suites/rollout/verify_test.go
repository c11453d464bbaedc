//go:build lab

package rollout

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/record"
)

var _ = Describe("the packets of a run that loses connections", func() {
	It("agree with its record and report to the attempt", func() {
		result, history := withoutFallback.Finished()
		r := verified(history, result.Dir)
		Expect(r.Findings).To(BeEmpty())
		Expect(r.Doubt()).To(BeEmpty())
		Expect(r.Lanes[0].Packets["connect-timeout"]).To(BeNumerically(">=", 500))
		Expect(r.Lanes[0].Unlocated).To(BeZero(), "each SYN must have passed a node")
	})

	DescribeTable("do not agree with the record of a prober that", func(broken prober, kind verify.Kind) {
		result, history := withoutFallback.Finished()
		r := verified(forged(history, kept{attempt: broken}), result.Dir)
		Expect(r.Findings).To(ContainElement(HaveField("Kind", kind)))
	},
		Entry("discards one failed attempt in fifty", discarding, verify.Unrecorded),
		Entry("charges one failed attempt in fifty to the wrong second", charging, verify.OtherTime),
		Entry("reports a reset as a timeout", renaming, verify.OtherOutcome))

	It("are as many as the client's kernel counted", func() {
		result, history := withoutFallback.Finished()
		r := verified(history, result.Dir)
		data, err := os.ReadFile(filepath.Join(result.Dir, record.CountersFile))
		Expect(err).NotTo(HaveOccurred())
		Expect(r.CompareCounters(bytes.NewReader(data))).To(Succeed())
		Expect(r.Findings).To(BeEmpty())
		Expect(r.Counters.Kernel.Opened).To(BeNumerically(">=", 5000))
		Expect(r.Counters.Kernel.Repeated).To(BeNumerically(">=", 500))
		Expect(r.Conntrack.Lookups).To(BeNumerically(">", 0), "the tracking of lost connections must have been looked up")

		r = verified(history, result.Dir)
		Expect(r.CompareCounters(strings.NewReader(`{"opened":1,"repeated":1}`))).To(Succeed())
		Expect(r.Findings).To(HaveExactElements(HaveField("Kind", verify.OtherKernel), HaveField("Kind", verify.OtherKernel)))
	})
})

var _ = Describe("a loop of curl in a run that loses connections", func() {
	It("fails only in outages of the report", func() {
		result, history := withoutFallback.Finished()
		r := looped(history, result.Report, result.Dir)
		Expect(r.Findings).To(BeEmpty())
		Expect(r.Doubt()).To(BeEmpty())
		Expect(r.Loop.Failed).To(BeNumerically(">", 0))
	})

	It("does not agree with a report without these outages", func() {
		result, _ := withoutFallback.Finished()
		passed, history := withFallback.Finished()
		Expect(passed.Report.Verdict).To(Equal(analysis.Pass))
		Expect(looped(history, passed.Report, result.Dir).Findings).To(ContainElement(HaveField("Kind", verify.OtherLoop)))
	})
})

// looped compares a report with the requests of curl in a folder.
func looped(h *record.History, report *analysis.Report, folder string) *verify.Result {
	GinkgoHelper()
	requests, err := os.Open(filepath.Join(folder, record.LoopFile))
	Expect(err).NotTo(HaveOccurred())
	defer requests.Close()
	r := verify.NewResult(h, report)
	Expect(r.CompareLoop(report, requests)).To(Succeed())
	return r
}

// verified compares a record with the capture of the run in a folder.
func verified(h *record.History, folder string) *verify.Result {
	GinkgoHelper()
	packets, err := os.ReadFile(filepath.Join(folder, record.CaptureFile))
	Expect(err).NotTo(HaveOccurred())
	report, err := analysis.Build(h)
	Expect(err).NotTo(HaveOccurred())
	r, err := verify.Verify(h, report, bytes.NewReader(packets))
	Expect(err).NotTo(HaveOccurred())
	return r
}

// prober changes an attempt as a broken prober writes it; failed counts the failed ones until then. It reports false for one that it discards.
type prober func(a *record.Attempt, failed int) bool

func discarding(a *record.Attempt, failed int) bool { return !a.Class.Dropped() || failed%50 != 0 }

func charging(a *record.Attempt, failed int) bool {
	if a.Class.Dropped() && failed%50 == 0 {
		a.Intended -= time.Second
	}
	return true
}

func renaming(a *record.Attempt, _ int) bool {
	if a.Class == record.Reset {
		a.Class = record.ReplyTimeout
	}
	return true
}

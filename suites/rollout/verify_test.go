//go:build lab

package rollout

import (
	"bytes"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/record"
)

var _ = Describe("the packets of a run that loses connections", func() {
	It("agree with its record and report to the attempt", func() {
		result, history := finished(withoutFallback)
		r := verified(history, result.Dir)
		Expect(r.Findings).To(BeEmpty())
		Expect(r.Doubt()).To(BeEmpty())
		Expect(r.Lanes[0].Packets["connect-timeout"]).To(BeNumerically(">=", 500))
		Expect(r.Lanes[0].Unlocated).To(BeZero(), "each SYN must have passed a node")
	})

	It("do not agree with a record that lacks one failed attempt in fifty", func() {
		result, history := finished(withoutFallback)
		r := verified(withoutSomeFailures(history), result.Dir)
		Expect(r.Findings).To(ContainElement(HaveField("Kind", verify.Unrecorded)))
	})
})

var _ = Describe("a loop of curl in a run that loses connections", func() {
	It("fails only in outages of the report", func() {
		result, history := finished(withoutFallback)
		r := looped(history, result.Report, result.Dir)
		Expect(r.Findings).To(BeEmpty())
		Expect(r.Doubt()).To(BeEmpty())
		Expect(r.Loop.Failed).To(BeNumerically(">", 0))
	})

	It("does not agree with a report without these outages", func() {
		result, _ := finished(withoutFallback)
		passed, history := finished(withFallback)
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

// withoutSomeFailures is the record as a prober writes it that discards each fiftieth failed attempt.
func withoutSomeFailures(h *record.History) *record.History {
	GinkgoHelper()
	dir := filepath.Join(GinkgoT().TempDir(), record.HistoryDir)
	w, err := record.NewHistoryWriter(dir, h.Run)
	Expect(err).NotTo(HaveOccurred())
	for e, err := range h.Events() {
		Expect(err).NotTo(HaveOccurred())
		w.Event(e)
	}
	failed := 0
	for a, err := range h.Attempts() {
		Expect(err).NotTo(HaveOccurred())
		if a.Class.Dropped() {
			failed++
		}
		if !a.Class.Dropped() || failed%50 != 0 {
			w.Attempt(a)
		}
	}
	Expect(w.Close()).To(Succeed())
	spoiled, err := record.OpenUnsealed(filepath.Dir(dir))
	Expect(err).NotTo(HaveOccurred())
	return spoiled
}

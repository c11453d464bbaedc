//go:build lab

package selfcheck

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

// everyKind measures all kinds of lanes, and fine new connections so often that an outage of 5 ms meets attempts.
var everyKind, fine *suites.Future

// allKinds are those that scenarios measure.
var allKinds = []string{record.ProtocolNew, record.ProtocolLong, record.ProtocolReuse, record.ProtocolFresh, record.ProtocolSticky}

// fineFloor is the detection floor that the run fine must prove, in ms.
const fineFloor = 5

// startKinds starts the runs of this file. They last hardly longer than their proof.
func startKinds(ctx context.Context, dir string) {
	quiet := func(name string, rate float64, set map[string]string) *suites.Future {
		set["quietFor"], set["settle"] = "2s", "6s"
		return suites.Start(ctx, dir, name, run.Options{Scenario: "quiet", LabOptions: site.LabOptions{ControlPlane: "replay"}, Seed: 1, Rate: rate, Set: set})
	}
	if suites.RunsUnlabeled() {
		everyKind = quiet("every-kind", 100, map[string]string{"lanes": strings.Join(allKinds, ","), "baseline": "10s"})
	}
	if suites.Selected(suites.Nightly) {
		fine = quiet("fine", 800, map[string]string{"shortestFault": "2500us", "baseline": "15s"})
	}
}

// expectProved expects that lanes of a kind found each fault that the kind can see, and met no other.
func expectProved(r *analysis.Report, kind string) {
	GinkgoHelper()
	for _, fault := range record.ProofFaults() {
		met := slices.DeleteFunc(slices.Clone(r.DetectionFloor.Faults), func(f analysis.KnownFault) bool {
			i := slices.IndexFunc(r.Controls, func(l analysis.LaneReport) bool { return l.Name == f.Lane })
			onNode := fault == record.ProofDropOnNode
			return r.Controls[i].Protocol != kind || (f.Node != "") != onNode || f.Fault != strings.TrimSuffix(string(fault), " on one node")
		})
		if !record.Sees(kind, fault) {
			Expect(met).To(BeEmpty(), "%s cannot meet the fault %s", kind, fault)
			continue
		}
		Expect(met).NotTo(BeEmpty(), "%s can meet the fault %s", kind, fault)
		for _, f := range met {
			Expect(f.Found).To(BeTrue(), "%s: %+v", kind, f)
		}
	}
}

var _ = Describe("a run with all kinds of lanes", func() {
	for _, kind := range allKinds {
		It("proves "+kind+" by each fault that it can see", func() {
			r := everyKind.Report()
			Expect(r.Verdict).To(Equal(analysis.Pass), "%v", r.Reasons)
			expectProved(r, kind)
		})

		It("is invalid if its lanes of kind "+kind+" had found no fault", func() {
			_, history, err := everyKind.Wait()
			Expect(err).NotTo(HaveOccurred())
			r, err := suites.Blinded(history, GinkgoT().TempDir(), func(l record.Lane, _ record.Attempt) bool { return l.Control && l.Role == "" && l.Protocol == kind })
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Verdict).To(Equal(analysis.Invalid))
			Expect(r.Reasons).To(ContainElement(ContainSubstring("lanes of kind " + kind + " did not see it")))
		})
	}
})

var _ = Describe("a run at 800 attempts per second with a fault of 2.5 ms", suites.Nightly, func() {
	It("proves a detection floor of at most 5 ms", func() {
		r := fine.Report()
		Expect(r.Verdict).To(Equal(analysis.Pass), "%v", r.Reasons)
		Expect(*r.DetectionFloor.Ms).To(BeNumerically("<=", fineFloor))
	})

	It("is invalid if the shortest fault had met no attempt", func() {
		_, history, err := fine.Wait()
		Expect(err).NotTo(HaveOccurred())
		var over time.Duration
		for e, err := range history.Events() {
			Expect(err).NotTo(HaveOccurred())
			if f, is := e.Body.(record.Fault); is && f.ID == "proof-1" {
				over = e.At + time.Second
			}
		}
		r, err := suites.Blinded(history, GinkgoT().TempDir(), func(l record.Lane, a record.Attempt) bool { return l.Name == "canary" && a.Intended < over })
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Verdict).To(Equal(analysis.Invalid))
		Expect(r.Reasons).To(ConsistOf(And(ContainSubstring("the injected drop of "), ContainSubstring("was not found"))))
	})
})

var _ = Describe("a run at 100 attempts per second", suites.Nightly, func() {
	It("proves no detection floor of 5 ms", func() {
		result, _ := failed(restarted)
		Expect(*result.Report.DetectionFloor.Ms).To(BeNumerically(">", fineFloor))
	})
})

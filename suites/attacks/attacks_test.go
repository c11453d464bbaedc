//go:build lab

package attacks

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
	"github.com/hitless/hitless/suites/faulty"
)

func TestAttacks(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "attacks")
}

var runs = suites.Runs{}

// labels are those of a case: smoke or none for a few, nightly for the others. The label unavoidable is for scenarios that excuse loss.
func (a attack) labels() (all Labels) {
	all = suites.Nightly
	switch {
	case a.smoke:
		all = suites.Smoke
	case a.ci:
		all = nil
	}
	if a.excused {
		all = append(Label("unavoidable"), all...)
	}
	return all
}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	program := filepath.Join(dir, "faulty")
	Expect(suites.Build(faulty.Package, program)).To(Succeed())
	for i, a := range attacks() {
		if !suites.Selected(a.labels()) {
			continue
		}
		subject := "bundled"
		if !a.bundled {
			subject = "exec:" + subjectFile(dir, fmt.Sprint("attack-", i), program, a)
		}
		runs[a.name] = suites.Start(ctx, dir, fmt.Sprint("run-", i), run.Options{Scenario: a.scenarioName(), Seed: max(1, a.seed), Rate: a.rate(), Set: a.settings(),
			LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}})
	}
})

// rate is that of the cases outside of the nightly run: half of the usual one, which meets each of their faults five times or more. The bound of
// latency needs as many connections as usual. 0 is the usual rate.
func (a attack) rate() float64 {
	if (a.smoke || a.ci) && a.reason != "became slow" {
		return 50
	}
	return 0
}

// subjectFile writes the subject file of a case and returns its name.
func subjectFile(dir, name, program string, a attack) string {
	GinkgoHelper()
	file := filepath.Join(dir, name+".yaml")
	Expect(faulty.Write(file, name, program, a.faults, a.flags)).To(Succeed())
	return file
}

var _ = Describe("a proxy that", func() {
	for _, a := range attacks() {
		It(fmt.Sprintf("%s: %s", a.name, a.want), a.labels(), func() {
			result, history, err := runs[a.name].Wait()
			if a.fails != "" {
				Expect(err).To(MatchError(ContainSubstring(a.fails)))
				Expect(errors.As(err, new(*run.InvalidError))).To(Equal(a.want == analysis.Invalid), "%v", err)
				return
			}
			Expect(err).NotTo(HaveOccurred())
			r := result.Report
			Expect(r.Verdict).To(Equal(a.want), "%v", r.Reasons)
			Expect(analysis.CheckAgreement(history, r)).To(Succeed())
			if a.reason != "" {
				Expect(strings.Join(r.Reasons, "\n")).To(ContainSubstring(a.reason))
			}
			a.expectFailures(r)
		})
	}
})

// expectFailures checks lane, class, node and phase of the failed attempts.
func (a attack) expectFailures(r *analysis.Report) {
	GinkgoHelper()
	if a.lane == "" {
		return
	}
	l := suites.LaneOf(r, a.lane)
	if a.among > 0 {
		Expect(slices.ContainsFunc(l.Outages, a.isOwn)).To(BeTrue(), "none of the outages is that of the fault: %+v", l.Outages)
		return
	}
	Expect(l.Outages).NotTo(BeEmpty(), "%v", r.Reasons)
	right, all := 0, 0
	for _, o := range l.Outages {
		if a.node != "" {
			Expect(o.Node).To(Equal(a.node), "%+v", o)
		}
		all += o.Failed()
		for _, c := range a.classes {
			right += o.Classes[c.String()]
		}
	}
	least := all
	if a.mostly {
		least = all * 9 / 10
	}
	Expect(right).To(BeNumerically(">=", least), "%d of %d have a class of %v: %+v", right, all, a.classes, l.Outages)
	Expect(phaseOf(r, l.Outages[0].From)).To(Equal(a.phase()), "%+v", l.Outages[0])
}

// isOwn reports whether an outage is that of the fault, and not one of the scenario.
func (a attack) isOwn(o analysis.OutageReport) bool {
	return (a.node == "" || o.Node == a.node) && o.UpperMs <= a.among.Seconds()*1e3 &&
		slices.ContainsFunc(a.classes, func(c record.Class) bool { return o.Classes[c.String()] > 0 })
}

func (a attack) phase() string {
	if a.earliest == "" {
		return "scenario"
	}
	return a.earliest
}

// phaseOf is the phase of a time in seconds.
func phaseOf(r *analysis.Report, at float64) (phase string) {
	for _, e := range r.Events {
		if e.Kind == record.KindPhase && e.At <= at {
			phase = e.Object
		}
	}
	return phase
}

//go:build lab

// Package kernels holds that the lab is one: the same scenario gives the same verdict in a VM and in namespaces of this
// machine's kernel, and the machine is left as it was.
package kernels

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestKernels(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kernels")
}

const (
	good = "kube-proxy@v1.37.1/nftables"
	bad  = "kube-proxy@v1.25.3/iptables" // drops when the last local pod terminates (kubernetes#85643)
)

var (
	runs   = map[string]*suites.Future{}
	events = map[string]*[]progress.Event{}
	before string // the machine's network, before anything ran
)

// rate is low, in attempts a second, so that a busy machine does not spoil the run: attempts may start a gap late, and others
// build their programs on this CPU meanwhile.
const rate = 5

// start begins a short rollout. In real time each second counts, so the windows are as small as the claim allows.
func start(ctx context.Context, dir, kernel, subject string) {
	reported := &[]progress.Event{} // by one goroutine at a time, and read when the run is over
	events[kernel+" "+subject] = reported
	runs[kernel+" "+subject] = suites.Start(ctx, dir, kernel+"-"+subject[len("kube-proxy@"):len("kube-proxy@v1.37.1")], run.Options{
		Scenario: "rollout", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject, Kernel: kernel}, Rate: rate,
		Progress: func(e progress.Event) { *reported = append(*reported, e) },
		Set: map[string]string{"rollouts": "1", "baseline": "10s", "settle": "2s", "shutdownDelay": "8s", "gracePeriod": "12s",
			"checkInterval": "1s"}})
}

var _ = BeforeSuite(func() {
	var err error
	before, err = network()
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	for _, kernel := range []string{"host", "vm"} { // the bad one first: it takes longer in a VM
		start(ctx, dir, kernel, bad)
	}
	if suites.RunsUnlabeled() {
		for _, kernel := range []string{"host", "vm"} {
			start(ctx, dir, kernel, good)
		}
	}
})

// report waits for a run. A machine that grants no namespaces has no host lane to hold anything of.
func report(kernel, subject string) *reports.Report {
	GinkgoHelper()
	result, history, err := runs[kernel+" "+subject].Wait()
	if refused := new(host.RefusedError); errors.As(err, &refused) {
		Skip(refused.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(reports.CheckAgreement(history, result.Report)).To(Succeed())
	Expect(suites.CheckExplained(result.Report)).To(Succeed())
	return result.Report
}

// The verdict is asserted on either kernel by itself, because two runs that could not be trusted would agree as well.
var _ = Describe("the same rollout on this machine's kernel and in a VM", func() {
	for _, c := range []struct {
		subject string
		verdict reports.Verdict
		label   Labels
	}{{bad, reports.Fail, suites.Smoke}, {good, reports.Pass, Label()}} {
		It("is "+string(c.verdict)+" for "+c.subject+" on both", c.label, func() {
			onHost, inVM := report("host", c.subject), report("vm", c.subject)
			Expect(onHost.Verdict).To(Equal(c.verdict), "on the host: %v", onHost.Reasons)
			Expect(inVM.Verdict).To(Equal(c.verdict), "in the VM: %v", inVM.Reasons)
			Expect(onHost.Run.Parameters).To(Equal(inVM.Run.Parameters))
			Expect(onHost.Run.Kernel.Kind).To(Equal("host"))
			Expect(onHost.Run.Clock).To(Equal("real"))
			Expect(inVM.Run.Kernel.Kind).To(Equal("vm"))
			Expect(inVM.Run.Clock).To(Equal("virtual"))
			Expect(onHost.Unexplained.Count).To(BeZero())
		})
	}

	It("shows the outage of v1.25.3 with the same cause and about the same length", func() {
		for _, kernel := range []string{"host", "vm"} {
			r := report(kernel, bad)
			Expect(r.Lanes[0].Outages).To(HaveLen(1), kernel)
			o := r.Lanes[0].Outages[0]
			// Three checks of 1 s find the node out; the first of them comes up to 1 s after the pod began to terminate.
			Expect(o.UpperMs).To(BeNumerically(">=", 1_500), kernel)
			Expect(o.LowerMs).To(BeNumerically("<=", 4_500), kernel)
			Expect(o.Cause.Event).To(Equal(report("vm", bad).Lanes[0].Outages[0].Cause.Event), kernel)
		}
	})

	It("reports meanwhile what is measured, in either", func() {
		for _, kernel := range []string{"host", "vm"} {
			total, reported := report(kernel, bad).Totals, *events[kernel+" "+bad]
			Expect(reported[len(reported)-1].Kind).To(Equal(progress.End), kernel)
			var measurements, stages []progress.Event
			for _, e := range reported {
				switch e.Kind {
				case progress.Measurement:
					measurements = append(measurements, e)
				case progress.Stage:
					stages = append(stages, e)
				}
			}
			Expect(len(measurements)).To(BeNumerically(">", 10), kernel)
			last := measurements[len(measurements)-1]
			// Attempts that ended in the last second may be missing; they began up to 4 s before that.
			Expect(last.Attempts).To(And(BeNumerically("<=", total.Attempts), BeNumerically(">", total.Attempts-6*rate)), kernel)
			Expect(last.Dropped).To(And(BeNumerically("<=", total.Dropped), BeNumerically(">", 0)), kernel)
			Expect(stages).To(ContainElement(HaveField("Text", Not(BeEmpty()))), kernel)
		}
	})

	It("leaves the machine's own network as it was", func() {
		report("host", bad)
		report("host", good)
		after, err := network()
		Expect(err).NotTo(HaveOccurred())
		Expect(after).To(Equal(before))
	})
})

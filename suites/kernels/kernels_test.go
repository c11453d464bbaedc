//go:build lab

// Package kernels tests that a scenario has the same verdict in a VM and in network namespaces of the host's kernel. The run on the
// host must not change the host's own network.
package kernels

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/host"
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
	runs   = suites.Runs{}
	events = map[string]*[]progress.Event{}
	before string // state of the host's network before the runs
)

// rate is low, in attempts per second, so that a busy host does not make the run invalid: lateness may be up to an interval.
const rate = 5

// start starts a short rollout. Its phases are as short as the checks allow, because the run on the host takes real time.
func start(ctx context.Context, dir, kernel, subject string) {
	reported := &[]progress.Event{} // written by one goroutine at a time, read after the run
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
	subjects := []string{bad} // first, since it takes longer in a VM
	if suites.Selected(suites.Host) {
		subjects = append(subjects, good)
	}
	// VMs would delay the attempts of labs on the host's kernel, so they start after the end of those.
	for _, kernel := range []string{"host", "vm"} {
		for _, subject := range subjects {
			start(ctx, dir, kernel, subject)
		}
		for _, subject := range subjects {
			_, _, _ = runs[kernel+" "+subject].Wait() // report returns the error
		}
	}
})

// report waits for a run. The spec is skipped when the host grants no namespaces.
func report(kernel, subject string) *analysis.Report {
	GinkgoHelper()
	name := kernel + " " + subject
	_, _, err := runs[name].Wait()
	if refused := new(host.RefusedError); errors.As(err, &refused) {
		Skip(refused.Error())
	}
	return runs.Report(name)
}

// The verdict is checked on each kernel, because two invalid runs would agree as well.
var _ = Describe("the same rollout on the host's kernel and in a VM", suites.Host, func() {
	for _, c := range []struct {
		subject string
		verdict analysis.Verdict
		label   Labels
	}{{bad, analysis.Fail, suites.Smoke}, {good, analysis.Pass, Label()}} {
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
		outages := map[string]analysis.OutageReport{}
		for _, kernel := range []string{"host", "vm"} {
			r := report(kernel, bad)
			Expect(r.Lanes[0].Outages).To(HaveLen(1), kernel)
			o := r.Lanes[0].Outages[0]
			outages[kernel] = o
			// The load balancer removes the node after three checks, 1 s apart. The first is up to 1 s after the pod began to terminate.
			Expect(o.UpperMs).To(BeNumerically(">=", 1_500), kernel)
			Expect(o.LowerMs).To(BeNumerically("<=", 4_500), kernel)
			Expect(o.Cause.Event).To(Equal("pod terminating"), kernel)
		}
		// The wait for the first check may differ by 1 s, and a busy host may delay the checks.
		const apart = 1_500
		onHost, inVM := outages["host"], outages["vm"]
		Expect(onHost.LowerMs).To(BeNumerically("<=", inVM.UpperMs+apart), "longer on the host than %+v", inVM)
		Expect(inVM.LowerMs).To(BeNumerically("<=", onHost.UpperMs+apart), "longer in the VM than %+v", onHost)
	})

	It("reports progress with measurements and stages on both", func() {
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
			// Attempts that ended in the last second may be missing; they started up to 4 s earlier.
			Expect(last.Attempts).To(And(BeNumerically("<=", total.Attempts), BeNumerically(">", total.Attempts-6*rate)), kernel)
			Expect(last.Dropped).To(And(BeNumerically("<=", total.Dropped), BeNumerically(">", 0)), kernel)
			Expect(stages).To(ContainElement(HaveField("Text", Not(BeEmpty()))), kernel)
		}
	})

	It("does not change the host's own network", func() {
		report("host", bad)
		report("host", good)
		after, err := network()
		Expect(err).NotTo(HaveOccurred())
		Expect(after).To(Equal(before))
	})
})

//go:build lab

// Package rollout tests what a rolling update behind externalTrafficPolicy: Local does to connections, with an unmodified control plane.
package rollout

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

func TestRollout(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "rollout")
}

// The runs are parallel. The repeated run starts after the first has ended, so that it runs concurrently with a CPU hog.
var withFallback, withoutFallback, repeated, otherSeed *suites.Future

// hogged gets the CPU time of the hog on each CPU, once it has ended.
var hogged = make(chan time.Duration, runtime.NumCPU())

// bursts is a hog that takes about a quarter of a CPU: other suites run beside this one. It ends by itself if the test program is killed.
const bursts = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done; sleep 0.3; done"

// rate is in attempts per second, and gives a run at least 5,000 attempts.
const rate = 50

func options(seed int64, fallback string) run.Options {
	return run.Options{Scenario: "rollout", Seed: seed, Rate: rate,
		Set: map[string]string{"trafficPolicy": "Local", "replicas": "1", "terminatingFallback": fallback}}
}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	withFallback = suites.Start(ctx, dir, "with", options(1, "on"))
	if !suites.RunsUnlabeled() {
		return
	}
	without := options(1, "off")
	without.Capture, without.Loop = true, true
	withoutFallback = suites.Start(ctx, dir, "without", without)
	_, _, err := withFallback.Wait()
	Expect(err).NotTo(HaveOccurred())
	if suites.Selected(suites.Nightly) {
		otherSeed = suites.Start(ctx, dir, "seed-2", options(2, "on"))
	}
	repeated = suites.Start(ctx, dir, "repeated", options(1, "on"))
	var hogs sync.WaitGroup
	for range cap(hogged) {
		hog := exec.CommandContext(ctx, "sh", "-c", bursts)
		Expect(hog.Start()).To(Succeed())
		hogs.Go(func() {
			_, _, _ = repeated.Wait() // the spec reports its error
			_ = hog.Process.Kill()
			_ = hog.Wait()
			hogged <- hog.ProcessState.UserTime()
		})
	}
	DeferCleanup(func() { cancel(); hogs.Wait() })
})

var _ = Describe("a rolling update behind externalTrafficPolicy: Local", func() {
	It("drops and delays no connection when serving terminating endpoints are used", suites.Smoke, func() {
		r := withFallback.Report()
		Expect(suites.CheckLossless(r)).To(Succeed())
		Expect(r.Totals.Attempts).To(BeNumerically(">=", 5000))
	})

	It("replaces pods: three generations answer, terminating pods answer in each rollout, and the load balancer's membership changes", func() {
		_, history := withFallback.Finished()
		Expect(checkReplaced(history)).To(Succeed())
	})

	DescribeTable("replaces no pods, the red twins, in a record", func(keep kept, missing string) {
		_, history := withFallback.Finished()
		Expect(checkReplaced(forged(history, keep))).To(MatchError(ContainSubstring(missing)))
	},
		Entry("without the second rollout", kept{event: firstRollout()}, "1 rollouts"),
		Entry("whose pods are of two generations", kept{attempt: twoGenerations()}, "2 generations"),
		Entry("without answers of terminating pods", kept{attempt: noneTerminating}, "no terminating pod"),
		Entry("without changes of the membership", kept{event: noMembership}, "the membership does not change"))

	It("has attempts in every second from 10 s before the first event to 20 s after the last", func() {
		_, history := withFallback.Finished()
		Expect(secondsWithout(history)).To(BeEmpty())
	})

	It("has a second without attempts, the red twin, in the record of a prober that stood still", func() {
		_, history := withFallback.Finished()
		first, last := window(history)
		still := []int{int((first - 8*time.Second).Seconds()), int(last.Seconds()) + 18}
		Expect(secondsWithout(forged(history, kept{attempt: outside(still)}))).To(Equal(still))
	})

	It("drops connections until the health check removes the node when terminating endpoints are not used (kubernetes#85643)", func() {
		result, history := withoutFallback.Finished()
		r := result.Report
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		outages := r.Lanes[0].Outages
		Expect(outages).To(HaveLen(2))
		for i, o := range outages {
			began, ended := terminationAndRemoval(history, o.Node, o.From)
			Expect(o.From).To(BeNumerically("~", began, 0.5), "outage %d begins when the only local pod starts terminating", i)
			Expect(o.To).To(BeNumerically("~", ended, 0.5), "outage %d ends when the load balancer removes %s", i, o.Node)
			Expect(o.LowerMs).To(BeNumerically(">=", 9_500))
			Expect(o.UpperMs).To(BeNumerically("<=", 15_500))
		}
	})
})

var _ = Describe("a repeated run", func() {
	It("gives the same history and report byte for byte, also concurrently with a CPU hog", func() {
		first, _ := withFallback.Finished()
		second, _ := repeated.Finished()
		for range cap(hogged) {
			Expect(<-hogged).To(BeNumerically(">", 0), "without time the hog shows nothing")
		}
		Expect(differing(first, second)).To(BeEmpty())
	})

	It("differs in each hash and file with another parameter, the red twin", func() {
		first, _ := withFallback.Finished()
		other, _ := withoutFallback.Finished()
		Expect(differing(first, other)).To(Equal(append([]string{"inputs", "history"}, repeatedFiles...)))
	})

	It("has another hash when one attempt took a nanosecond longer, another red twin", func() {
		first, history := withFallback.Finished()
		Expect(record.HistorySha256(forged(history, kept{}).Dir())).To(Equal(first.HistorySha256))
		Expect(record.HistorySha256(forged(history, kept{attempt: slower(1000)}).Dir())).NotTo(Equal(first.HistorySha256))
	})

	It("gives a different history and the same verdict with another seed", suites.Nightly, func() {
		first, _ := withFallback.Finished()
		other, history := otherSeed.Finished()
		Expect(other.Report.Verdict).To(Equal(first.Report.Verdict))
		Expect(same(first.Dir, other.Dir, "history/attempts.bin")).To(BeFalse())
		_, one := withFallback.Finished()
		Expect(latencies(history)).NotTo(Equal(latencies(one)), "the seed must change the timing of connections")
	})
})

// repeatedFiles are the files of a run that a repetition has byte for byte.
var repeatedFiles = []string{"report.json", "history/run.json", "history/events.ndjson", "history/attempts.bin"}

// differing are the hashes and the files in which two runs differ.
func differing(one, other *run.Result) (all []string) {
	GinkgoHelper()
	if one.InputsSha256 != other.InputsSha256 {
		all = append(all, "inputs")
	}
	if one.HistorySha256 != other.HistorySha256 {
		all = append(all, "history")
	}
	for _, name := range repeatedFiles {
		if !same(one.Dir, other.Dir, name) {
			all = append(all, name)
		}
	}
	return all
}

func same(one, other, name string) bool {
	GinkgoHelper()
	a, err := os.ReadFile(filepath.Join(one, name))
	Expect(err).NotTo(HaveOccurred())
	b, err := os.ReadFile(filepath.Join(other, name))
	Expect(err).NotTo(HaveOccurred())
	return bytes.Equal(a, b)
}

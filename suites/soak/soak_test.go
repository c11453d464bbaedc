//go:build lab

// Package soak tests hours of rollouts, proxy restarts and scaling, in virtual time.
package soak

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

func TestSoak(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "soak")
}

// kube-proxy before v1.26.0 drops connections to a node whose only pods are terminating (kubernetes#85643).
const (
	withBug    = "kube-proxy@v1.25.3/iptables"
	withoutBug = "kube-proxy@v1.26.0/iptables"
)

// seeds is the number of seeds that one soak is repeated with.
const seeds = 10

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	seeded := func(seed int64, name, subject string, set map[string]string) {
		all := map[string]string{"for": "1h", "trafficPolicy": "Local", "baseline": "20s"} // five attempts on each of three paths
		maps.Copy(all, set)
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "soak", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}, Seed: seed, Rate: 1, Set: all})
	}
	begin := func(name, subject string, set map[string]string) { seeded(1, name, subject, set) }
	// The half has as many disturbances as the hour.
	half := map[string]string{"for": "30m", "rolloutsPerHour": "20", "restartsPerHour": "2", "scalesPerHour": "2"}
	proved := map[string]string{"proofEvery": "10m"}
	maps.Copy(proved, half)
	begin("half an hour", "bundled", proved)
	if suites.RunsUnlabeled() {
		begin("half an hour with bug", withBug, half)
	}
	if suites.Selected(suites.Nightly) {
		begin("hour", "bundled", nil)
		begin("hour with bug", withBug, nil)
		begin("hour without bug", withoutBug, nil)
		begin("no terminating fallback", "bundled", map[string]string{"terminatingFallback": "off"})
		begin("all kinds", "bundled", map[string]string{"trafficPolicy": "Cluster", "flapsPerHour": "6", "apiBlipsPerHour": "3", "burstsPerHour": "6", "drainedPorts": "20"})
		begin("nodes lost", "bundled", map[string]string{"trafficPolicy": "Cluster", "nodeLossesPerHour": "2", "keepGoing": "on"})
		for seed := range int64(seeds) {
			seeded(1+seed, fmt.Sprint("seed ", 1+seed), "bundled", map[string]string{"for": "10m", "trafficPolicy": "Cluster"})
		}
		begin("twelve hours", "bundled", map[string]string{"for": "12h", "signal": "KILL", "restartsPerHour": "4"})
	}
})

// expectLossless expects a soak of at least so many seconds without loss, and a last step with the words in done.
func expectLossless(name string, seconds int, done string) {
	GinkgoHelper()
	r := runs.Report(name)
	Expect(suites.CheckLossless(r)).To(Succeed())
	Expect(r.Totals.Attempts).To(BeNumerically(">=", seconds), "one attempt each second")
	suites.TimeOf(r, float64(seconds), record.KindStep, "", done)
}

var _ = Describe("half an hour of rollouts, restarts and scaling behind externalTrafficPolicy: Local", func() {
	It("drops no connection with the bundled proxier", suites.Smoke, func() {
		expectLossless("half an hour", 1800, "12 of 12 planned disturbances had their effect")
	})

	It("proves its detector before and three times during the churn", suites.Smoke, func() {
		floor := runs.Report("half an hour").DetectionFloor
		Expect(floor.Proofs).To(Equal(4))
		Expect(*floor.ProvedUntil).To(BeNumerically(">", 1800))
		Expect(floor.Found).To(Equal(floor.Injected))
	})

	It("is invalid from the second proof on if the third had found no fault", func() {
		_, history, err := runs["half an hour"].Wait()
		Expect(err).NotTo(HaveOccurred())
		r, err := suites.Blinded(history, GinkgoT().TempDir(), func(l record.Lane, _ record.Attempt) bool { return l.Name == "canary-3" })
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Verdict).To(Equal(analysis.Invalid))
		Expect(*r.DetectionFloor.ProvedUntil).To(And(BeNumerically(">", 600), BeNumerically("<", 1200)))
		Expect(r.Reasons[0]).To(HavePrefix("the detector is proved until +"))
	})

	It("drops connections with kube-proxy v1.25.3 to a node whose only pod is terminating, until the load balancer removes the node (kubernetes#85643)", func() {
		expectTerminatingLoss(runs.Report("half an hour with bug"))
	})
})

var _ = Describe("an hour of the same", suites.Nightly, func() {
	It("drops no connection with the bundled proxier", func() {
		expectLossless("hour", 3600, "12 of 12 planned disturbances had their effect")
	})

	It("drops connections with kube-proxy v1.25.3 to a node whose only pod is terminating, until the load balancer removes the node (kubernetes#85643)", func() {
		expectTerminatingLoss(runs.Report("hour with bug"))
	})

	It("drops no connection with kube-proxy v1.26.0", func() {
		expectLossless("hour without bug", 3600, "12 of 12 planned disturbances had their effect")
	})

	It("drops the same connections with the bundled proxier when it does not use terminating endpoints", func() {
		expectTerminatingLoss(runs.Report("no terminating fallback"))
	})
})

var _ = Describe("an hour in which pods flap, the API server is unreachable, and other endpoints change and drain", suites.Nightly, func() {
	It("drops no connection with the bundled proxier", func() {
		expectLossless("all kinds", 3600, "27 of 27 planned disturbances had their effect")
	})
})

var _ = Describe("an hour in which nodes lose power", suites.Nightly, func() {
	It("drops connections over those nodes until the load balancer removes them, and to their pods until those are unready, and no others", func() {
		r := runs.Report("nodes lost")
		Expect(r.Verdict).To(Equal(analysis.Pass), "no proxy can prevent this loss: %v", r.Reasons)
		Expect(r.ExcusedAttempts()).To(Equal(r.Totals.Dropped + r.Totals.Delayed))
		suites.TimeOf(r, 3600, record.KindStep, "", "14 of 14 planned disturbances had their effect")
		over := 0 // outages over the node without power
		for _, o := range r.Lanes[0].Outages {
			Expect(o.Cause.Event).To(Equal("node off"), "%+v", o)
			Expect(o.Cause.AfterMs).To(BeNumerically("<=", 1000*(50+3)), "%+v", o)
			off := lastPowerLoss(r, o.From)
			Expect(o.Cause.Text).To(HavePrefix(off.Text), "%+v", o)
			within := unready
			if o.Node == off.Node {
				within = removed
				over++
			}
			Expect(o.To-off.At).To(BeNumerically("<", within), "%+v", o)
		}
		Expect(over).To(BeNumerically(">", 0))
	})
})

// The longest losses, in seconds after a node lost power; docs/scenarios.md has both. The load balancer removes the node after three failed
// health checks, 25 s apart. Proxies stop using the node's pods when these become unready, because the node sends no heartbeats.
const (
	removed = 3*25 + 0.1
	unready = 57.0
)

// lastPowerLoss returns the last loss of power before a time. An attempt may have been under way when it happened.
func lastPowerLoss(r *analysis.Report, before float64) (off analysis.ReportEvent) {
	GinkgoHelper()
	for _, e := range r.Events {
		if e.Kind == record.KindNode && strings.HasSuffix(e.Text, " lost power") && e.At < before+0.25 {
			off = e
		}
	}
	Expect(off.Node).NotTo(BeEmpty(), "no node lost power before +%.3f s", before)
	return off
}

// expectTerminatingLoss expects outages only on nodes whose only pod began to terminate. They last until the load balancer removes the
// node: two failed health checks, 25 s apart.
func expectTerminatingLoss(r *analysis.Report) {
	GinkgoHelper()
	// interval is the number of seconds between two attempts on one path. When the load balancer adds a
	// node, another path waits for up to one interval more.
	const interval = 3.0
	Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
	Expect(r.Lanes[0].Outages).NotTo(BeEmpty())
	for _, o := range r.Lanes[0].Outages {
		Expect(o.Classes).To(HaveKeyWithValue(record.ConnectTimeout.String(), o.Failed()), "%+v", o)
		Expect(o.Cause.Event).To(Equal("pod terminating"), "%+v", o)
		Expect(o.Cause.Text).To(HavePrefix("the only local pod "), "%+v", o)
		Expect(o.Cause.Text).To(ContainSubstring(" on "+o.Node+" started terminating"), "%+v", o)
		Expect(o.Cause.AfterMs).To(BeNumerically("<=", 1000*2*interval), "%+v", o)
		Expect(o.LowerMs).To(BeNumerically(">=", 1000*(25-2*interval)), "%+v", o)
		Expect(o.UpperMs).To(BeNumerically("<=", 1000*(50+2*interval)), "%+v", o)
	}
}

var _ = Describe("a soak of ten minutes with ten seeds", suites.Nightly, func() {
	It("gives ten different histories, and drops no connection in any", func() {
		histories := map[string]string{}
		for seed := range seeds {
			name := fmt.Sprint("seed ", 1+seed)
			Expect(suites.CheckLossless(runs.Report(name))).To(Succeed(), name)
			result, _ := runs[name].Finished()
			Expect(histories).NotTo(HaveKey(result.HistorySha256), "%s has the history of %s", name, histories[result.HistorySha256])
			histories[result.HistorySha256] = name
		}
	})
})

var _ = Describe("twelve hours in which a proxy is killed four times an hour", suites.Nightly, func() {
	It("drops no connection with the bundled proxier", func() {
		expectLossless("twelve hours", 12*3600, "180 of 180 planned disturbances had their effect")
	})
})

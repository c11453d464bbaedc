//go:build lab

// Package soak promises what hours of ordinary life cost: rollouts, restarts of proxies, scaling out and in, in virtual time.
package soak

import (
	"context"
	"fmt"
	"maps"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestSoak(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "soak")
}

// The last kube-proxy that drops what comes to a node whose only pods are terminating, and the first that does not
// (kubernetes#85643).
const (
	drops = "kube-proxy@v1.25.3/iptables"
	keeps = "kube-proxy@v1.26.0/iptables"
)

// seeds is how many histories are made of one soak.
const seeds = 10

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	seeded := func(seed int64, name, subject string, set map[string]string) {
		all := map[string]string{"for": "1h", "trafficPolicy": "Local", "baseline": "10s"}
		maps.Copy(all, set)
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "soak", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}, Seed: seed, Rate: 1, Set: all})
	}
	begin := func(name, subject string, set map[string]string) { seeded(1, name, subject, set) }
	begin("hour", "bundled", nil)
	if suites.RunsUnlabeled() {
		begin("hour drops", drops, nil)
	}
	if suites.Selected(suites.Nightly) {
		begin("hour keeps", keeps, nil)
		begin("off", "bundled", map[string]string{"terminatingFallback": "off"})
		begin("all kinds", "bundled", map[string]string{"trafficPolicy": "Cluster", "flapsPerHour": "6", "apiBlipsPerHour": "3", "burstsPerHour": "6", "drainedPorts": "20"})
		begin("nodes lost", "bundled", map[string]string{"trafficPolicy": "Cluster", "nodeLossesPerHour": "2", "keepGoing": "on"})
		for seed := range int64(seeds) {
			seeded(1+seed, fmt.Sprint("seed ", 1+seed), "bundled", map[string]string{"for": "10m", "trafficPolicy": "Cluster"})
		}
		begin("half a day", "bundled", map[string]string{"for": "12h", "signal": "KILL", "restartsPerHour": "4"})
	}
})

// losesNothing holds for a soak that lasted so many seconds, and in which all that was planned had its effect.
func losesNothing(name string, seconds int, done string) {
	GinkgoHelper()
	r := runs.Report(name)
	Expect(suites.CheckLossless(r)).To(Succeed())
	Expect(r.Totals.Attempts).To(BeNumerically(">=", seconds), "one each second")
	_, err := suites.EventTime(r, float64(seconds), record.KindStep, "", done)
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("an hour of rollouts, restarts and scaling behind externalTrafficPolicy: Local", func() {
	It("costs no connection with the bundled proxier", suites.Smoke, func() {
		losesNothing("hour", 3600, "12 of 12 planned disturbances had their effect")
	})

	It("costs those to a node whose only pod is terminating with kube-proxy v1.25.3, until the balancer leaves it (kubernetes#85643)", func() {
		leavesTooEarly(runs.Report("hour drops"))
	})

	It("costs none with kube-proxy v1.26.0", suites.Nightly, func() {
		losesNothing("hour keeps", 3600, "12 of 12 planned disturbances had their effect")
	})

	It("costs the same with the bundled proxier when it does not use terminating endpoints", suites.Nightly, func() {
		leavesTooEarly(runs.Report("off"))
	})
})

var _ = Describe("an hour in which pods flap, the API server goes away and other endpoints change and drain", suites.Nightly, func() {
	It("costs no connection with the bundled proxier", func() {
		losesNothing("all kinds", 3600, "27 of 27 planned disturbances had their effect")
	})
})

var _ = Describe("an hour in which nodes lose their power", suites.Nightly, func() {
	It("costs connections over them until the balancer leaves them, and nothing else", func() {
		r := runs.Report("nodes lost")
		Expect(r.Verdict).To(Equal(reports.Fail), "%v", r.Reasons)
		_, err := suites.EventTime(r, 3600, record.KindStep, "", "14 of 14 planned disturbances had their effect")
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Lanes[0].Outages).NotTo(BeEmpty())
		for _, o := range r.Lanes[0].Outages {
			Expect(o.Cause.Event).To(Equal("node off"), "%+v", o)
			Expect(o.Cause.AfterMs).To(BeNumerically("<=", 1000*(50+3)), "%+v", o)
		}
	})
})

// leavesTooEarly holds when each outage is one of a node whose only pod began to terminate, and as long as the balancer takes to leave
// the node: two failed checks, 25 s apart.
func leavesTooEarly(r *reports.Report) {
	GinkgoHelper()
	const gap = 3.0 // seconds between two attempts on one path
	Expect(r.Verdict).To(Equal(reports.Fail), "%v", r.Reasons)
	Expect(r.Lanes[0].Outages).NotTo(BeEmpty())
	for _, o := range r.Lanes[0].Outages {
		Expect(o.Classes).To(HaveKeyWithValue(record.ConnectTimeout.String(), o.Failed()), "%+v", o)
		Expect(o.Cause.Event).To(Equal("pod terminating"), "%+v", o)
		Expect(o.Cause.Text).To(HavePrefix("the only local pod "), "%+v", o)
		Expect(o.Cause.Text).To(ContainSubstring(" on "+o.Node+" started terminating"), "%+v", o)
		Expect(o.Cause.AfterMs).To(BeNumerically("<=", 1000*(gap+1)), "%+v", o)
		Expect(o.LowerMs).To(BeNumerically(">=", 1000*(25-2*gap)), "%+v", o)
		Expect(o.UpperMs).To(BeNumerically("<=", 1000*(50+2*gap)), "%+v", o)
	}
}

var _ = Describe("ten minutes with ten seeds", suites.Nightly, func() {
	It("are ten histories, and none loses a connection", func() {
		histories := map[string]string{}
		for seed := range seeds {
			name := fmt.Sprint("seed ", 1+seed)
			Expect(suites.CheckLossless(runs.Report(name))).To(Succeed(), name)
			result, _, err := runs[name].Wait()
			Expect(err).NotTo(HaveOccurred())
			Expect(histories).NotTo(HaveKey(result.HistorySha256), "%s is as %s", name, histories[result.HistorySha256])
			histories[result.HistorySha256] = name
		}
	})
})

var _ = Describe("half a day with a proxy that is killed four times an hour", suites.Nightly, func() {
	It("costs no connection with the bundled proxier", func() {
		losesNothing("half a day", 12*3600, "180 of 180 planned disturbances had their effect")
	})
})

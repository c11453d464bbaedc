//go:build lab

// Package subjects reproduces historical bugs of kube-proxy with the original binaries: each with a version that has the bug and
// one that does not.
package subjects

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/suites"
)

func TestSubjects(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "subjects")
}

var runs = suites.Runs{}

// start starts a rollout behind externalTrafficPolicy: Local with a kube-proxy in mode iptables.
func start(ctx context.Context, dir, version, fallback string) *suites.Future {
	return roll(ctx, dir, version, fallback, "passthrough")
}

// rollRate is in attempts per second. It is low because outages last for seconds, and attempts determine the duration of a run.
const rollRate = 50

func roll(ctx context.Context, dir, version, fallback, balancer string) *suites.Future {
	set := map[string]string{"loadBalancer": balancer, "rollouts": "1", "baseline": "10s", "settle": "10s"}
	if fallback != "" {
		set["terminatingFallback"] = fallback
	}
	return suites.Start(ctx, dir, version+"-"+fallback+"-"+balancer, run.Options{Scenario: "rollout", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: "kube-proxy@" + version + "/iptables"}, Seed: 1, Rate: rollRate, Set: set})
}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	if suites.RunsUnlabeled() {
		runs["1.25.3 HAProxy"] = startHAProxy(ctx, dir, "v1.25.3", "")
		runs["1.26.0 HAProxy"] = startHAProxy(ctx, dir, "v1.26.0", "")
	}
	if suites.Selected(suites.Nightly) { // packages kernels and soak have the bug without HAProxy in CI
		runs["1.26.0"] = start(ctx, dir, "v1.26.0", "")
		runs["1.25.3"] = start(ctx, dir, "v1.25.3", "")
		runs["1.25.3 with"] = start(ctx, dir, "v1.25.3", "on")
		runs["1.26.0 without"] = start(ctx, dir, "v1.26.0", "off")
		runs["1.25.3 with, HAProxy"] = startHAProxy(ctx, dir, "v1.25.3", "on")
		runs["1.26.0 without, HAProxy"] = startHAProxy(ctx, dir, "v1.26.0", "off")
	}
})

// expectBug expects one long outage: the old node drops connections until three health checks, 5 s apart, fail.
func expectBug(name string) {
	GinkgoHelper()
	r := runs.Report(name)
	Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
	long := 0
	for _, o := range r.Lanes[0].Outages {
		if o.UpperMs >= 9_500 {
			Expect(o.LowerMs).To(BeNumerically("<=", 16_000))
			Expect(o.Cause.Event).To(Equal("pod terminating"), "%+v", o)
			Expect(o.Cause.Text).To(HavePrefix("the only local pod web-"), "%+v", o)
			long++
		}
	}
	Expect(long).To(Equal(1), "one outage as long as the health checks take: %+v", r.Lanes[0].Outages)
}

var _ = Describe("kubernetes#85643: a rolling update behind externalTrafficPolicy: Local", func() {
	It("drops connections with kube-proxy v1.25.3", suites.Nightly, func() { expectBug("1.25.3") })
	It("drops and delays no connection with kube-proxy v1.26.0", suites.Nightly, func() { Expect(suites.CheckLossless(runs.Report("1.26.0"))).To(Succeed()) })
	It("drops and delays no connection with v1.25.3 and the feature gate on", suites.Nightly, func() { Expect(suites.CheckLossless(runs.Report("1.25.3 with"))).To(Succeed()) })
	It("drops connections with v1.26.0 and the feature gate off", suites.Nightly, func() { expectBug("1.26.0 without") })
})

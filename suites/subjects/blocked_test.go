//go:build lab

package subjects

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

// The proxies of the specs below: one tries a failed sync again 30 s later, the other one 1 s later.
const (
	slowRetry = "kube-proxy@v1.37.1/iptables"
	fastRetry = slowRetry + "?iptables-min-sync-period=500ms&iptables-sync-period=1s"
)

// startBlocked starts a run in which the programs of node-1's proxy fail while the node's pod ends.
func startBlocked(ctx context.Context, dir, name, subject string) {
	runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "interference", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}, Seed: 1, Rate: rollRate,
		Set: map[string]string{"what": "programs", "baseline": "10s", "settle": "10s"}})
}

// unblockedAt is when the programs worked again.
func unblockedAt(r *analysis.Report) float64 {
	GinkgoHelper()
	for _, e := range r.Events {
		if e.Kind == record.KindProxy && strings.Contains(e.Text, "work again") {
			return e.At
		}
	}
	Fail("the programs never worked again")
	return 0
}

var _ = Describe("a pod that ends while the programs of its node's proxy fail", Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		startBlocked(ctx, dir, "slow-retry", slowRetry)
		startBlocked(ctx, dir, "fast-retry", fastRetry)
	})

	It("costs connections after they work again with a proxy that tries a failed sync again after 30 s", func() {
		r := runs.Report("slow-retry")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		Expect(r.Excused).To(HaveLen(1))
		Expect(r.Excused[0].Until).To(BeNumerically("~", unblockedAt(r)+2, 0.1))
		Expect(r.ExcusedAttempts()).To(BeNumerically("<", r.Totals.Dropped+r.Totals.Delayed))
		for _, o := range r.Lanes[0].Outages {
			Expect(o.Node).To(Equal("node-1"), "%+v", o)
		}
		last := r.Lanes[0].Outages[len(r.Lanes[0].Outages)-1]
		Expect(last.From+last.LowerMs/1e3).To(BeNumerically(">", r.Excused[0].Until), "%+v", last)
	})

	It("costs nothing with a proxy that tries it again after 1 s", func() { Expect(suites.CheckLossless(runs.Report("fast-retry"))).To(Succeed()) })
})

// blockedLines are the steps of a block with policy Cluster in which a pod ends. Another change lets the proxy follow at once.
func blockedLines(meanwhile ...string) string {
	return strings.Join(slices.Concat([]string{"hitless timeline 1", "nodes 3", "rate 50", "set gracePeriod=5s", "set replicas=3", "set shutdownDelay=3s", "set trafficPolicy=Cluster",
		"+0s proxy block node-1", "+1s pod terminate web#1"}, meanwhile,
		[]string{"+16s proxy unblock node-1", "+16s endpoints create other addresses=10.9.9.9", "+22s end", ""}), "\n")
}

// replayBlocked starts a run of blockedLines.
func replayBlocked(ctx context.Context, dir, name string, meanwhile ...string) {
	GinkgoHelper()
	file := filepath.Join(dir, name+".timeline")
	Expect(os.WriteFile(file, []byte(blockedLines(meanwhile...)), 0o644)).To(Succeed())
	line, err := run.ReadTimeline(ctx, file)
	Expect(err).NotTo(HaveOccurred())
	runs[name] = suites.Start(ctx, dir, name, run.Options{Timeline: line, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: slowRetry}})
}

// The twin loses all connections over the node, and not only those to the ended pod.
var _ = Describe("with policy Cluster, a proxy that is blocked while a pod ends", Ordered, ContinueOnFailure, suites.Nightly, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		replayBlocked(ctx, dir, "blocked-share")
		replayBlocked(ctx, dir, "blocked-all", "+6s node run node-1 nft add table inet attack",
			"+6s node run node-1 nft add chain inet attack first { type filter hook prerouting priority -300 ; }",
			"+6s node run node-1 nft add rule inet attack first ip daddr 203.0.113.10 tcp dport 80 drop", "+15s node run node-1 nft delete table inet attack")
	})

	It("passes if it loses what goes to the pod over the node", func() {
		r := runs.Report("blocked-share")
		Expect(r.Verdict).To(Equal(analysis.Pass), "%v", r.Reasons)
		Expect(r.ExcusedAttempts()).To(BeNumerically(">", 0))
	})

	It("fails if it loses everything over the node", func() {
		r := runs.Report("blocked-all")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		Expect(r.ExcusedAttempts()).To(And(BeNumerically(">", 0), BeNumerically("<", r.Totals.Dropped+r.Totals.Delayed)))
	})
})

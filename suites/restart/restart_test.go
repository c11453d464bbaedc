//go:build lab

// Package restart tests what happens to connections when a node's proxy is restarted, killed or stopped with SIGSTOP.
package restart

import (
	"context"
	"maps"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

func TestRestart(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "restart")
}

// withBug is a kube-proxy with kubernetes#92019, fixed in v1.26.0: an endpoint that becomes ready while the proxy does not run stays
// at weight 0.
const withBug = "kube-proxy@v1.25.3/ipvs"

// current are proxies that drop no connection when they are restarted.
var current = []string{"bundled", "kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/nftables", "kube-proxy@v1.37.1/iptables"}

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	begin := func(name, subject string, nodes int, set map[string]string) {
		all := map[string]string{"lanes": "tcp-new,tcp-long", "trafficPolicy": "Cluster", "baseline": "10s", "settle": "10s"}
		maps.Copy(all, set)
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "restart", LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: nodes, Subject: subject}, Seed: 1, Rate: 50, Set: all})
	}
	// One of two pods is always ready. A backend that stays at weight 0 is visible when the other pod becomes unready.
	ready := map[string]string{"change": "ready", "replicas": "2"}
	begin("ready", "bundled", 2, ready)
	if suites.RunsUnlabeled() {
		begin("ready with bug", withBug, 2, ready)
	}
	if suites.Selected(suites.Nightly) {
		for _, subject := range current {
			begin("killed "+subject, subject, 3, map[string]string{"signal": "KILL", "which": "all"})
			begin("frozen "+subject, subject, 3, map[string]string{"signal": "STOP", "which": "all", "downtime": "10s"})
		}
		for name, signal := range map[string]string{"killed for 15s": "KILL", "frozen for 15s": "STOP"} {
			begin(name, "bundled", 3, map[string]string{"signal": signal, "which": "one", "downtime": "15s", "change": "on",
				"shutdownDelay": "2s", "gracePeriod": "5s"})
		}
	}
})

var _ = Describe("a pod that becomes ready while its node's proxy restarts", func() {
	It("causes no dropped connection, new or open, with the bundled proxier", suites.Smoke, func() {
		Expect(suites.CheckLossless(runs.Report("ready"))).To(Succeed())
	})

	It("stays unused with kube-proxy v1.25.3 in mode ipvs: that node rejects new connections while the other pod is unready (kubernetes#92019)", func() {
		r := runs.Report("ready with bug")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		Expect(suites.LaneOf(r, "tcp-long").Outages).To(BeEmpty(), "open connections continue at weight 0")
		outages := suites.LaneOf(r, "tcp-new").Outages
		Expect(outages).To(HaveLen(1))
		o := outages[0]
		Expect(o.Node).To(Equal("node-1"), "the node whose proxy was restarted")
		Expect(o.Classes).To(HaveKeyWithValue(record.Rejected.String(), o.Failed()))
		Expect(o.Cause.Event).To(Equal("pod unready"))
		Expect(o.Cause.Text).To(ContainSubstring("on node-2 became unready"))
		unready := suites.TimeOf(r, 0, record.KindPod, "node-2", " unready: ")
		ready := suites.TimeOf(r, unready, record.KindPod, "node-2", " ready: ")
		Expect(o.From).To(BeNumerically("~", unready, 0.5))
		Expect(o.To).To(BeNumerically("~", ready, 0.5))
		Expect(o.LowerMs).To(BeNumerically("~", 1000*(ready-unready), 500))
	})
})

var _ = Describe("a failure of the proxies of all nodes at once", suites.Nightly, func() {
	for _, subject := range current {
		It("by SIGKILL drops no connection, new or open, with "+subject, func() {
			Expect(suites.CheckLossless(runs.Report("killed " + subject))).To(Succeed())
		})

		It("by SIGSTOP for 10 s drops no connection, new or open, with "+subject, func() {
			Expect(suites.CheckLossless(runs.Report("frozen " + subject))).To(Succeed())
		})
	}
})

// The red twins of the specs above: they show that the proxies did not run.
var _ = DescribeTable("a pod that exits while its node's proxy does not run: that node drops connections until the proxy runs", suites.Nightly,
	func(name, back string) {
		r := runs.Report(name)
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		exited := suites.TimeOf(r, 0, record.KindPod, "node-1", " exited")
		again := suites.TimeOf(r, exited, record.KindProxy, "node-1", back)
		outages := suites.LaneOf(r, "tcp-new").Outages
		Expect(outages).NotTo(BeEmpty())
		for _, o := range outages {
			Expect(o.Node).To(Equal("node-1"), "%+v", o)
			Expect(o.From).To(BeNumerically(">", exited-0.1), "%+v", o)
			Expect(o.To).To(BeNumerically("<", again+0.5), "%+v", o)
			Expect(o.Cause.Event).To(Equal("pod exited"), "%+v", o)
		}
	},
	Entry("killed", "killed for 15s", " is ready"),
	Entry("stopped with SIGSTOP", "frozen for 15s", " continued"),
)

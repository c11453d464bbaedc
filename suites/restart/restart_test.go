//go:build lab

// Package restart promises what becomes of connections when a node's proxy ends and starts again, is killed, or stands still.
package restart

import (
	"context"
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

func TestRestart(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "restart")
}

// forgetful is the last kube-proxy that leaves an endpoint at weight 0 when that became ready while the proxy was away
// (kubernetes#92019).
const forgetful = "kube-proxy@v1.25.3/ipvs"

// today are the proxies that no restart may cost a connection.
var today = []string{"bundled", "kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/nftables", "kube-proxy@v1.37.1/iptables"}

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
	// One of two pods is ready at any time: a proxy that has given up the one shows it when the other becomes unready.
	ready := map[string]string{"change": "ready", "replicas": "2"}
	begin("ready", "bundled", 2, ready)
	if suites.RunsUnlabeled() {
		begin("ready forgetful", forgetful, 2, ready)
	}
	if suites.Selected(suites.Nightly) {
		for _, subject := range today {
			begin("killed "+subject, subject, 3, map[string]string{"signal": "KILL", "which": "all"})
			begin("frozen "+subject, subject, 3, map[string]string{"signal": "STOP", "which": "all", "downtime": "10s"})
		}
		for name, signal := range map[string]string{"late": "KILL", "stiff": "STOP"} {
			begin(name, "bundled", 3, map[string]string{"signal": signal, "which": "one", "downtime": "15s", "change": "on",
				"shutdownDelay": "2s", "gracePeriod": "5s"})
		}
	}
})

// when is the time of the first such event of a node after a time.
func when(r *reports.Report, after float64, kind record.Kind, node, words string) float64 {
	GinkgoHelper()
	at, err := suites.EventTime(r, after, kind, node, words)
	Expect(err).NotTo(HaveOccurred())
	return at
}

func outages(r *reports.Report, lane string) []reports.OutageReport {
	GinkgoHelper()
	l, err := suites.FindLane(r, lane)
	Expect(err).NotTo(HaveOccurred())
	return l.Outages
}

var _ = Describe("a pod that becomes ready while its node's proxy is restarted", func() {
	It("is used again from then on, and no connection is lost, new or open, with the bundled proxier", suites.Smoke, func() {
		Expect(suites.CheckLossless(runs.Report("ready"))).To(Succeed())
	})

	It("is given up by kube-proxy v1.25.3 in mode ipvs: when the other pod is unready, that node rejects what is new (kubernetes#92019)", func() {
		r := runs.Report("ready forgetful")
		Expect(r.Verdict).To(Equal(reports.Fail), "%v", r.Reasons)
		Expect(outages(r, "tcp-long")).To(BeEmpty(), "what is open goes on at weight 0")
		Expect(outages(r, "tcp-new")).To(HaveLen(1))
		o := outages(r, "tcp-new")[0]
		Expect(o.Node).To(Equal("node-1"), "whose proxy was restarted before")
		Expect(o.Classes).To(HaveKeyWithValue(record.Rejected.String(), o.Failed()))
		Expect(o.Cause.Event).To(Equal("pod unready"))
		Expect(o.Cause.Text).To(ContainSubstring("on node-2 became unready"))
		unready := when(r, 0, record.KindPod, "node-2", " unready: ")
		ready := when(r, unready, record.KindPod, "node-2", " ready: ")
		Expect(o.From).To(BeNumerically("~", unready, 0.5))
		Expect(o.To).To(BeNumerically("~", ready, 0.5))
		Expect(o.LowerMs).To(BeNumerically("~", 1000*(ready-unready), 500))
	})
})

var _ = Describe("the proxies of all nodes at once", suites.Nightly, func() {
	for _, subject := range today {
		It("may be killed without the loss of a connection, new or open, with "+subject, func() {
			Expect(suites.CheckLossless(runs.Report("killed " + subject))).To(Succeed())
		})

		It("may stand still for 10 s without one, with "+subject, func() {
			Expect(suites.CheckLossless(runs.Report("frozen " + subject))).To(Succeed())
		})
	}
})

// The twins: these zeros are those of proxies that were away.
var _ = DescribeTable("a pod that is gone before its node's proxy is back costs that node's connections to it, until it is", suites.Nightly,
	func(name, back string) {
		r := runs.Report(name)
		Expect(r.Verdict).To(Equal(reports.Fail), "%v", r.Reasons)
		exited := when(r, 0, record.KindPod, "node-1", " exited")
		again := when(r, exited, record.KindProxy, "node-1", back)
		Expect(outages(r, "tcp-new")).NotTo(BeEmpty())
		for _, o := range outages(r, "tcp-new") {
			Expect(o.Node).To(Equal("node-1"), "%+v", o)
			Expect(o.From).To(BeNumerically(">", exited-0.1), "%+v", o)
			Expect(o.To).To(BeNumerically("<", again+0.5), "%+v", o)
			Expect(o.Cause.Event).To(Equal("pod exited"), "%+v", o)
		}
	},
	Entry("killed", "late", " is ready"),
	Entry("standing still", "stiff", " continued"),
)

//go:build lab

// Package upgrade tests what happens to connections when another version or mode replaces each node's proxy.
package upgrade

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
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

func TestUpgrade(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "upgrade")
}

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	begin := func(name, subject, to string, set map[string]string) {
		all := map[string]string{"to": to, "lanes": "tcp-new,tcp-long", "trafficPolicy": "Cluster", "baseline": "10s", "settle": "10s"}
		maps.Copy(all, set)
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "upgrade", LabOptions: site.LabOptions{ControlPlane: "replay", Subject: subject}, Seed: 1, Rate: 50, Set: all})
	}
	empty := func(name, cleanup string) {
		begin(name, "kube-proxy@v1.37.1/iptables", "kube-proxy@v1.37.1/ipvs", map[string]string{"empty": "on", "cleanup": cleanup,
			"lanes": "tcp-new", "shutdownDelay": "5s", "gracePeriod": "10s"})
	}
	begin("itself", "bundled", "itself", nil)
	if suites.RunsUnlabeled() {
		begin("flushing", "exec:"+flushing(dir), "itself", nil)
		empty("without cleanup", "off")
	}
	if suites.Selected(suites.Nightly) {
		empty("with cleanup", "on")
		begin("ipvs", "kube-proxy@v1.36.1/ipvs", "kube-proxy@v1.37.1/ipvs", nil)
		begin("iptables", "kube-proxy@v1.25.3/iptables", "kube-proxy@v1.26.0/iptables", nil)
	}
})

// flushing describes the bundled proxier with a fault: it deletes the Service's virtual servers when it starts again.
func flushing(dir string) (file string) {
	GinkgoHelper()
	program := filepath.Join(dir, "faulty")
	Expect(suites.Build(faulty.Package, program)).To(Succeed())
	text, err := os.ReadFile("../selfcheck/faulty/flush-on-restart.yaml")
	Expect(err).NotTo(HaveOccurred())
	file = filepath.Join(dir, "flush-on-restart.yaml")
	text = regexp.MustCompile(`(?m)^program: .*$`).ReplaceAllLiteral(text, []byte("program: "+program))
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	return file
}

var _ = Describe("an upgrade of each node's proxy, one after the other", func() {
	It("drops no new or open connection from the bundled proxier to itself", suites.Smoke, func() {
		Expect(suites.CheckLossless(runs.Report("itself"))).To(Succeed())
	})

	It("drops new and open connections of a proxy that starts with deleting its rules, the red twin", func() {
		r := runs.Report("flushing")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		for _, name := range []string{record.ProtocolNew, record.ProtocolLong} {
			Expect(suites.LaneOf(r, name).Outages).NotTo(BeEmpty(), name)
		}
	})

	It("drops no new or open connection from kube-proxy v1.36.1 to v1.37.1 in mode ipvs", suites.Nightly, func() {
		Expect(suites.CheckLossless(runs.Report("ipvs"))).To(Succeed())
	})

	It("drops no new or open connection from kube-proxy v1.25.3 to v1.26.0 in mode iptables", suites.Nightly, func() {
		Expect(suites.CheckLossless(runs.Report("iptables"))).To(Succeed())
	})
})

// While the proxies change there is no pod, so that rejected connections are correct. They are wrong once there are pods again.
var _ = Describe("kube-proxy's change from iptables to ipvs while a Service has no pod", func() {
	It("makes nodes reject connections to that Service to the end of the run, without a cleanup of the old rules", func() {
		r := runs.Report("without cleanup")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		gone, again := podless(r)
		end := suites.TimeOf(r, again, record.KindPhase, "", "phase end")
		Expect(end-again).To(BeNumerically(">", 9), "long enough for a late proxy to apply the change")
		// node-1 is excluded: its proxy is changed first, soon after the scale-down, and may not have written the reject rule.
		for _, node := range nodes[1:] {
			o := lastOutage(r.Lanes[0], node, gone+1)
			Expect(o.From).To(BeNumerically("~", gone, 1), "%+v", o)
			Expect(o.To).To(BeNumerically("~", end, 0.5), "%+v", o)
			Expect(float64(o.Classes[record.Rejected.String()])/float64(o.Failed())).To(BeNumerically(">", 0.9), "%+v", o)
			Expect(o.Cause.Event).To(Or(Equal("pod exited"), Equal("pod terminating")), "%+v", o)
			Expect(o.Cause.Text).To(HaveSuffix("it lasted until the lane ended"), "%+v", o)
		}
	})

	It("makes every node serve the Service once there are pods, after the old proxy's --cleanup", suites.Nightly, func() {
		r := runs.Report("with cleanup")
		gone, again := podless(r)
		for _, node := range nodes {
			o := onlyOutage(r.Lanes[0], node)
			Expect(o.From).To(BeNumerically(">", gone-0.5), "%+v", o)
			Expect(o.To).To(BeNumerically("<", again+4), "kube-proxy in this mode syncs at most once per second: %+v", o)
		}
	})
})

var nodes = []string{"node-1", "node-2", "node-3"}

// onlyOutage returns the node's outage, which must be the only one.
func onlyOutage(l analysis.LaneReport, node string) analysis.OutageReport {
	GinkgoHelper()
	var found []analysis.OutageReport
	for _, o := range l.Outages {
		if o.Node == node {
			found = append(found, o)
		}
	}
	Expect(found).To(HaveLen(1), node)
	return found[0]
}

// lastOutage returns the node's last outage. Earlier ones must end by an instant: while the pods exit, a connection may still meet a
// pod that answers.
func lastOutage(l analysis.LaneReport, node string, by float64) analysis.OutageReport {
	GinkgoHelper()
	var last *analysis.OutageReport
	for i, o := range l.Outages {
		if o.Node != node {
			continue
		}
		if last != nil {
			Expect(last.To).To(BeNumerically("<", by), "%+v", *last)
		}
		last = &l.Outages[i]
	}
	Expect(last).NotTo(BeNil(), node)
	return *last
}

// podless returns when the first pod exited after the scaling to zero, and when the first pod was ready again, in seconds.
func podless(r *analysis.Report) (gone, again float64) {
	GinkgoHelper()
	scaled := suites.TimeOf(r, 0, record.KindStep, "", "scale to 0")
	first := func(after float64, words string) float64 {
		at := math.Inf(1)
		for _, node := range nodes {
			if t, err := suites.EventTime(r, after, record.KindPod, node, words); err == nil {
				at = min(at, t)
			}
		}
		Expect(math.IsInf(at, 1)).To(BeFalse(), "no pod event has the text %s", words)
		return at
	}
	gone = first(scaled, " exited")
	return gone, first(gone, " ready: ")
}

//go:build lab

// Package migration tests what happens to connections while a node changes from one proxy's rules to another's.
package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

func TestMigration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "migration")
}

const (
	version = "v1.37.1"
	nodes   = 2
	// dialDeadline is that of the lanes, in seconds (docs/measuring.md).
	dialDeadline = 3.0
)

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	begin := func(name, subject, to, cleanup, back string) {
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "migrate", LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: nodes, Subject: subject}, Seed: 1, Rate: 50, Set: map[string]string{"to": to, "cleanup": cleanup, "back": back, "trafficPolicy": "Cluster",
			"replicas": "2", "baseline": "10s", "settle": "10s"}})
	}
	migrated := func(mode string) string {
		return describe(ctx, dir, mode, "[/usr/bin/hitless, proxier, migrate, --from="+mode+`, --to=bundled, "--kubeconfig={kubeconfig}",
  "--hostname-override={node}", "--cluster-cidr={clusterCIDR}"]`)
	}
	begin("migrated ipvs", migrated("ipvs"), "bundled", "on", "off")
	if suites.RunsUnlabeled() {
		begin("to nftables", "kube-proxy@"+version+"/ipvs", "kube-proxy@"+version+"/nftables", "off", "on")
	}
	if suites.Selected(suites.Nightly) {
		begin("migrated iptables", migrated("iptables"), "bundled", "on", "off")
		begin("migrated nftables", migrated("nftables"), "bundled", "on", "off")
	}
})

// describe writes a subject file for kube-proxy with another cleanup command. The file adds a modprobe that does nothing: without
// modprobe, kube-proxy assumes that the kernel has no IPVS, and the lab's kernel has its modules loaded.
func describe(ctx context.Context, dir, mode, cleanup string) string {
	GinkgoHelper()
	cached, err := cache.Dir()
	Expect(err).NotTo(HaveOccurred())
	builder := &build.Builder{Cache: filepath.Join(cached, "build"), Progress: func(s build.Step) { fmt.Fprintln(GinkgoWriter, s.Text) }}
	built, err := builder.Build(ctx, build.Target{Name: "kube-proxy", Version: version})
	Expect(err).NotTo(HaveOccurred())
	modprobe := filepath.Join(dir, "modprobe")
	Expect(os.WriteFile(modprobe, []byte("#!/bin/sh\n"), 0o755)).To(Succeed())
	protocols := filepath.Join(dir, "protocols") // ipset looks up protocol names
	Expect(os.WriteFile(protocols, []byte("tcp 6 TCP\nudp 17 UDP\n"), 0o644)).To(Succeed())
	text := fmt.Sprintf(`name: kube-proxy-as-installed
version: %[1]s
mode: %[2]s
program: %[3]s
args: ["--proxy-mode=%[2]s", "--kubeconfig={kubeconfig}", "--hostname-override={node}", "--cluster-cidr={clusterCIDR}",
  "--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"]
files: [{from: %[4]s, to: /usr/bin/modprobe}, {from: %[5]s, to: /etc/protocols}]
tools: [sh, iptables, ipset, nft, conntrack]
ready: {url: "http://127.0.0.1:10256/healthz"}
terminatingFallback: on
cleanup: %[6]s
`, version, mode, built[0].Path, modprobe, protocols, cleanup)
	file := filepath.Join(dir, "kube-proxy-"+mode+".yaml")
	Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	return "exec:" + file
}

var _ = Describe("`hitless proxier migrate` from kube-proxy to the bundled proxier", func() {
	It("drops no new or open connection from mode ipvs", suites.Smoke, func() {
		Expect(suites.CheckLossless(runs.Report("migrated ipvs"))).To(Succeed())
	})

	for _, mode := range []string{"iptables", "nftables"} {
		It("drops no new or open connection from mode "+mode, suites.Nightly, func() {
			Expect(suites.CheckLossless(runs.Report("migrated " + mode))).To(Succeed())
		})
	}
})

// kube-proxy flushes IPVS when it starts in another mode, and writes its own rules after that. Until then open connections are not
// translated; afterwards they get a new backend.
var _ = Describe("kube-proxy's own change from mode ipvs to nftables and back", func() {
	It("drops new and open connections on each node, from the start of its new proxy until that is ready", func() {
		r := runs.Report("to nftables")
		Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
		expected := map[string][]record.Class{
			"tcp-new": {record.ConnectTimeout, record.Delayed},
			// A connection that was reset is opened again, and can meet what new connections meet.
			"tcp-long": {record.Reset, record.ReplyTimeout, record.Stalled, record.Delayed, record.ConnectTimeout},
		}
		for lane, classes := range expected {
			l := suites.LaneOf(r, lane)
			outages := longestByNode(l)
			Expect(outages).To(HaveLen(nodes), lane)
			for node, o := range outages {
				Expect(o.UpperMs).To(BeNumerically(">", 500), "%s of %s: %+v", lane, node, o)
				Expect(o.LowerMs).To(BeNumerically("<", 3000), "%s of %s: %+v", lane, node, o)
			}
			for _, o := range l.Outages {
				Expect(countClasses(o, classes)).To(Equal(o.Failed()), "%s: %+v", lane, o)
				Expect(o.Cause.Event).To(Equal("proxy exited"), "%s: %+v", lane, o)
				Expect(o.Cause.Text).To(HavePrefix("the proxy on "+o.Node+" exited"), "%s: %+v", lane, o)
				started, ready := proxyStart(r, o)
				Expect(o.From).To(BeNumerically(">", started), "%s: %+v", lane, o)
				last := o.To
				if o.Classes[record.ConnectTimeout.String()] > 0 { // a request waits for a dial, which may have begun as long before
					last -= dialDeadline
				}
				Expect(last).To(BeNumerically("<", ready+2), "%s: %+v", lane, o)
			}
		}
	})
})

// longestByNode returns the longest outage of each node that has one.
func longestByNode(l analysis.LaneReport) map[string]analysis.OutageReport {
	found := map[string]analysis.OutageReport{}
	for _, o := range l.Outages {
		if o.UpperMs > found[o.Node].UpperMs {
			found[o.Node] = o
		}
	}
	return found
}

// countClasses returns the number of attempts of the outage that have one of the classes.
func countClasses(o analysis.OutageReport, classes []record.Class) (n int) {
	for _, c := range classes {
		n += o.Classes[c.String()]
	}
	return n
}

// proxyStart returns when the last proxy before the outage was started on its node, and when that proxy was ready, in seconds.
func proxyStart(r *analysis.Report, o analysis.OutageReport) (started, ready float64) {
	GinkgoHelper()
	for at := 0.0; ; {
		next, err := suites.EventTime(r, at, record.KindProxy, o.Node, " started")
		if err != nil || next > o.From {
			break
		}
		at, started = next, next
	}
	return started, suites.TimeOf(r, started, record.KindProxy, o.Node, " is ready")
}

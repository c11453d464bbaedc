//go:build lab

// Package migration promises what becomes of connections on the way from one proxy's rules to another's.
package migration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestMigration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "migration")
}

const (
	version = "v1.37.1"
	nodes   = 3
)

var runs = suites.Runs{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	begin := func(name, subject, to, cleanup, back string) {
		runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "migrate", LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: nodes, Subject: subject}, Seed: 1, Rate: 50, Set: map[string]string{"to": to, "cleanup": cleanup, "back": back, "trafficPolicy": "Cluster",
			"baseline": "10s", "settle": "10s"}})
	}
	moved := func(mode string) string {
		return describe(ctx, dir, mode, "[/usr/bin/hitless, proxier, migrate, --from="+mode+`, --to=bundled, "--kubeconfig={kubeconfig}",
  "--hostname-override={node}", "--cluster-cidr={clusterCIDR}"]`)
	}
	begin("moved ipvs", moved("ipvs"), "bundled", "on", "off")
	if suites.RunsUnlabeled() {
		begin("to nftables", "kube-proxy@"+version+"/ipvs", "kube-proxy@"+version+"/nftables", "off", "on")
	}
	if suites.Selected(suites.Nightly) {
		begin("moved iptables", moved("iptables"), "bundled", "on", "off")
		begin("moved nftables", moved("nftables"), "bundled", "on", "off")
	}
})

// describe writes the description of kube-proxy in a mode, as it is installed, with another program in the place of its cleanup: with
// modprobe, without which it takes the kernel for one that has no IPVS. What that would load is there.
func describe(ctx context.Context, dir, mode, cleanup string) string {
	GinkgoHelper()
	cached, err := cache.Dir()
	Expect(err).NotTo(HaveOccurred())
	builder := &build.Builder{Cache: filepath.Join(cached, "build"), Progress: func(s string) { fmt.Fprintln(GinkgoWriter, s) }}
	built, err := builder.Build(ctx, build.Target{Name: "kube-proxy", Version: version})
	Expect(err).NotTo(HaveOccurred())
	modprobe, err := exec.LookPath("true")
	Expect(err).NotTo(HaveOccurred())
	protocols := filepath.Join(dir, "protocols") // ipset asks for the names
	Expect(os.WriteFile(protocols, []byte("tcp 6 TCP\nudp 17 UDP\n"), 0o644)).To(Succeed())
	text := fmt.Sprintf(`name: kube-proxy-as-installed
version: %[1]s
mode: %[2]s
program: %[3]s
args: ["--proxy-mode=%[2]s", "--kubeconfig={kubeconfig}", "--hostname-override={node}", "--cluster-cidr={clusterCIDR}",
  "--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"]
files: [{from: %[4]s, to: /usr/bin/modprobe}, {from: %[5]s, to: /etc/protocols}]
tools: [iptables, ipset, nft, conntrack]
ready: {url: "http://127.0.0.1:10256/healthz"}
terminatingFallback: on
cleanup: %[6]s
`, version, mode, built[0].Path, modprobe, protocols, cleanup)
	file := filepath.Join(dir, "kube-proxy-"+mode+".yaml")
	Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	return "exec:" + file
}

var _ = Describe("the way from kube-proxy to the bundled proxier, by `hitless proxier migrate`", func() {
	It("costs no connection, new or open, from mode ipvs", suites.Smoke, func() {
		Expect(suites.CheckLossless(runs.Report("moved ipvs"))).To(Succeed())
	})

	for _, mode := range []string{"iptables", "nftables"} {
		It("costs none from mode "+mode, suites.Nightly, func() {
			Expect(suites.CheckLossless(runs.Report("moved " + mode))).To(Succeed())
		})
	}
})

// kube-proxy flushes IPVS when it starts in another mode, and writes its own rules after that. Connections that are open have no
// address to be translated to meanwhile, and are balanced anew afterwards.
var _ = Describe("kube-proxy's own way from ipvs to nftables and back", func() {
	It("costs connections on each node from its new proxy's start until that is ready, new ones and open ones", func() {
		r := runs.Report("to nftables")
		Expect(r.Verdict).To(Equal(reports.Fail), "%v", r.Reasons)
		fails := map[string][]record.Class{
			"tcp-new":  {record.ConnectTimeout, record.Delayed},
			"tcp-long": {record.Reset, record.ReplyTimeout, record.Stalled, record.Delayed},
		}
		for lane, classes := range fails {
			l, err := suites.FindLane(r, lane)
			Expect(err).NotTo(HaveOccurred())
			lost := longest(l)
			Expect(lost).To(HaveLen(nodes), lane)
			for node, o := range lost {
				Expect(o.UpperMs).To(BeNumerically(">", 500), "%s of %s: %+v", lane, node, o)
				Expect(o.LowerMs).To(BeNumerically("<", 3000), "%s of %s: %+v", lane, node, o)
			}
			for _, o := range l.Outages {
				Expect(failedAs(o, classes)).To(Equal(o.Failed()), "%s: %+v", lane, o)
				Expect(o.Cause.Event).To(Equal("proxy exited"), "%s: %+v", lane, o)
				Expect(o.Cause.Text).To(HavePrefix("the proxy on "+o.Node+" exited"), "%s: %+v", lane, o)
				started, ready := change(r, o)
				Expect(o.From).To(BeNumerically(">", started), "%s: %+v", lane, o)
				Expect(o.To).To(BeNumerically("<", ready+2), "%s: %+v", lane, o)
			}
		}
	})
})

// longest is the longest outage of each node that has one.
func longest(l reports.LaneReport) map[string]reports.OutageReport {
	found := map[string]reports.OutageReport{}
	for _, o := range l.Outages {
		if o.UpperMs > found[o.Node].UpperMs {
			found[o.Node] = o
		}
	}
	return found
}

// failedAs is how many attempts of the outage failed in one of the classes.
func failedAs(o reports.OutageReport, classes []record.Class) (n int) {
	for _, c := range classes {
		n += o.Classes[c.String()]
	}
	return n
}

// change is when the last proxy that was started on the outage's node before it was started, and when it was ready.
func change(r *reports.Report, o reports.OutageReport) (started, ready float64) {
	GinkgoHelper()
	for at := 0.0; ; {
		next, err := suites.EventTime(r, at, record.KindProxy, o.Node, " started")
		if err != nil || next > o.From {
			break
		}
		at, started = next, next
	}
	ready, err := suites.EventTime(r, started, record.KindProxy, o.Node, " is ready")
	Expect(err).NotTo(HaveOccurred())
	return started, ready
}

//go:build lab

package subjects

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// withoutMinSyncPeriod writes a subject file for kube-proxy v1.37.1 with a minimum sync period of 0. With the default of 1 s the pods can become
// ready again only every 2 s, and a run of minutes has too few resets.
func withoutMinSyncPeriod(ctx context.Context, dir string) string {
	GinkgoHelper()
	cached, err := cache.Dir()
	Expect(err).NotTo(HaveOccurred())
	builder := &build.Builder{Cache: filepath.Join(cached, "build"), Progress: func(s build.Step) { fmt.Fprintln(GinkgoWriter, s.Text) }}
	built, err := builder.Build(ctx, build.Target{Name: "kube-proxy", Version: "v1.37.1"})
	Expect(err).NotTo(HaveOccurred())
	program, err := filepath.Rel(dir, built[0].Path)
	Expect(err).NotTo(HaveOccurred())
	protocols := filepath.Join(dir, "protocols") // ipset looks up protocol names
	Expect(os.WriteFile(protocols, []byte("tcp 6 TCP\nudp 17 UDP\n"), 0o644)).To(Succeed())
	original, err := os.ReadFile("../../hack/kube-proxy-at-once.yaml") // the subject file of make zero-loss, with other paths
	Expect(err).NotTo(HaveOccurred())
	const prefix = "../out/zero-loss/"
	Expect(strings.Count(string(original), prefix)).To(Equal(2))
	file := filepath.Join(dir, "kube-proxy-at-once.yaml")
	text := strings.NewReplacer(prefix+"kube-proxy", program, prefix+"protocols", "protocols").Replace(string(original))
	Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	return "exec:" + file
}

// startReready starts a run in which two pods become unready and ready again, 100 times in all. Each pod has four open connections with 250 requests
// per second each, so that some requests meet a pod that was just deleted.
func startReready(ctx context.Context, dir, name, subject string) {
	runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "flap", LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: 1, Subject: subject}, Seed: 1, Rate: 2,
		Set: map[string]string{"antiAffinity": "off", "flaps": "50", "unready": "150ms", "openConnections": "8", "askEvery": "4.013ms",
			"stayOpen": "1s", "watch": "0s", "baseline": "10s", "settle": "10s"}})
}

// longLane returns the lane of the open connections.
func longLane(name string) analysis.LaneReport {
	GinkgoHelper()
	expectOpenConnections(name)
	return suites.LaneOf(runs.Report(name), "tcp-long")
}

// kube-proxy deletes and adds an endpoint that becomes ready again. A packet between the two ends its connection
// (net.ipv4.vs.expire_nodest_conn). The bundled proxier changes the weight instead.
var _ = Describe("busy connections to pods that become ready again", suites.Nightly, Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		startReready(ctx, dir, "reready kube-proxy", withoutMinSyncPeriod(ctx, dir))
		startReready(ctx, dir, "reready bundled", "bundled")
	})

	It("are reset with kube-proxy v1.37.1 in mode ipvs", func() {
		l := longLane("reready kube-proxy")
		Expect(l.Dropped).To(BeNumerically(">", 0))
		for _, o := range l.Outages {
			Expect(o.Classes).To(HaveKeyWithValue(record.Reset.String(), o.Failed()), "%+v", o)
		}
	})

	It("are not dropped with the bundled proxier", func() {
		Expect(longLane("reready bundled").Dropped).To(BeZero())
	})
})

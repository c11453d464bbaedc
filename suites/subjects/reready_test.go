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

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

// atOnce describes kube-proxy v1.37.1 with no least time between its passes: with its default of a second, an endpoint can become
// ready again but once in two, and the gap that is looked for is met too seldom for a run of minutes.
func atOnce(ctx context.Context, dir string) string {
	GinkgoHelper()
	cached, err := cache.Dir()
	Expect(err).NotTo(HaveOccurred())
	builder := &build.Builder{Cache: filepath.Join(cached, "build"), Progress: func(s string) { fmt.Fprintln(GinkgoWriter, s) }}
	built, err := builder.Build(ctx, build.Target{Name: "kube-proxy", Version: "v1.37.1"})
	Expect(err).NotTo(HaveOccurred())
	program, err := filepath.Rel(dir, built[0].Path)
	Expect(err).NotTo(HaveOccurred())
	protocols := filepath.Join(dir, "protocols") // ipset asks for the names
	Expect(os.WriteFile(protocols, []byte("tcp 6 TCP\nudp 17 UDP\n"), 0o644)).To(Succeed())
	described, err := os.ReadFile("../../hack/kube-proxy-at-once.yaml") // as make zero-loss has it, but for its two paths
	Expect(err).NotTo(HaveOccurred())
	const there = "../out/zero-loss/"
	Expect(strings.Count(string(described), there)).To(Equal(2))
	file := filepath.Join(dir, "kube-proxy-at-once.yaml")
	text := strings.NewReplacer(there+"kube-proxy", program, there+"protocols", "protocols").Replace(string(described))
	Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	return "exec:" + file
}

// startReready begins a run in which two pods become unready and ready again, 50 times in all, while four connections to each are
// asked 250 times a second: about six requests meet a gap of 60 µs.
func startReready(ctx context.Context, dir, name, subject string) {
	runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: "flap", LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: 1, Subject: subject}, Seed: 1, Rate: 2,
		Set: map[string]string{"antiAffinity": "off", "flaps": "25", "unready": "100ms", "openConnections": "8", "askEvery": "4ms",
			"stayOpen": "1s", "watch": "0s", "baseline": "10s", "settle": "10s"}})
}

// busy is what the connections that were open saw.
func busy(name string) reports.LaneReport {
	GinkgoHelper()
	openToBothPods(name)
	r := report(name)
	Expect(r.Verdict).NotTo(Equal(reports.Invalid), "%v", r.Reasons)
	return laneOf(r, "tcp-long")
}

// An endpoint that is ready again is deleted and added by kube-proxy: a packet in between, some 60 µs, ends its connection
// (expire_nodest_conn). The bundled proxier edits its weight.
var _ = Describe("busy connections to pods that become ready again", suites.Nightly, Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		startReready(ctx, dir, "reready kube-proxy", atOnce(ctx, dir))
		startReready(ctx, dir, "reready bundled", "bundled")
	})

	It("are reset with kube-proxy v1.37.1 in mode ipvs", func() {
		l := busy("reready kube-proxy")
		Expect(l.Dropped).To(BeNumerically(">", 0))
		for _, o := range l.Outages {
			Expect(o.Classes).To(HaveKeyWithValue(record.Reset.String(), o.Failed()), "%+v", o)
		}
	})

	It("are not with the bundled proxier", func() {
		Expect(busy("reready bundled").Dropped).To(BeZero())
	})
})

//go:build lab

package upgrade

import (
	"context"
	"fmt"
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

// seedSeeds are the seeds of both twins. The hang is a race, so one seed could be a coincidence.
var seedSeeds = []int64{1, 2}

// lostNode is a node that the load balancer removed after a step of a run, in seconds since its start.
type lostNode struct {
	name     string
	at       float64
	returned bool
}

// nodesLost are the nodes that the load balancer removed from the measured Service after the first upgraded proxy had started, each
// once, and the time of that start.
func nodesLost(h *record.History) (lost []lostNode, upgraded float64) {
	GinkgoHelper()
	var members []string
	for e, err := range h.Events() {
		Expect(err).NotTo(HaveOccurred())
		at := e.At.Seconds()
		if _, step := e.Body.(record.Step); step && upgraded == 0 && strings.HasPrefix(e.Object, "proxy start ") {
			upgraded = at
		}
		m, is := e.Body.(record.Membership)
		if !is || m.Service != "default/web" {
			continue
		}
		for _, node := range members {
			known := slices.ContainsFunc(lost, func(l lostNode) bool { return l.name == node })
			if upgraded > 0 && !known && !slices.Contains(m.Nodes, node) {
				lost = append(lost, lostNode{name: node, at: at})
			}
		}
		for i := range lost {
			lost[i].returned = lost[i].returned || lost[i].at < at && slices.Contains(m.Nodes, lost[i].name)
		}
		members = m.Nodes
	}
	Expect(upgraded).NotTo(BeZero(), "no proxy was started")
	return lost, upgraded
}

// The first seed: after an upgrade of kube-proxy from v1.11 to v1.12.2, a cluster's nodes failed the health checks of its load balancer, one
// after the other, hours apart (kubernetes#71071). Here the changes of endpoints are timed, so that minutes are enough.
var _ = Describe("the first seed's upgrade, with a load balancer that checks nodes by a connection to the NodePort", Ordered, ContinueOnFailure, suites.Nightly, func() {
	seeded := map[string]*suites.Future{}
	name := func(twin string, seed int64) string { return fmt.Sprint("first seed ", twin, " ", seed) }
	BeforeAll(func(ctx SpecContext) {
		background, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		for twin, how := range map[string]struct{ subject, to string }{"kube-proxy": {seedOld, seedNew}, "bundled": {"bundled", "subject"}} {
			file := filepath.Join(dir, twin+".timeline")
			Expect(os.WriteFile(file, []byte(firstSeed(how.to)), 0o600)).To(Succeed())
			line, err := run.ReadTimeline(ctx, file)
			Expect(err).NotTo(HaveOccurred())
			for _, seed := range seedSeeds {
				seeded[name(twin, seed)] = suites.Start(background, dir, strings.ReplaceAll(name(twin, seed), " ", "-"),
					run.Options{Timeline: line, Seed: seed, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: how.subject}})
			}
		}
	})

	It("loses nodes by their health checks with kube-proxy v1.12.2, and they do not return", func() {
		hung := 0
		for _, seed := range seedSeeds {
			// Not Finished: it wants a cause for nearly all lost connections, also for those that no node is left for.
			result, h, err := seeded[name("kube-proxy", seed)].Wait()
			Expect(err).NotTo(HaveOccurred())
			r := result.Report
			Expect(r.Verdict).NotTo(Equal(analysis.Invalid), "%v", r.Reasons)
			lost, upgraded := nodesLost(h)
			AddReportEntry(name("kube-proxy", seed), fmt.Sprintf("%s; lost %+v; upgrade at +%.0f s", strings.Join(r.Reasons, "; "), lost, upgraded))
			if len(lost) == 0 {
				continue
			}
			hung++
			Expect(r.Verdict).To(Equal(analysis.Fail), "%v", r.Reasons)
			for _, node := range lost {
				Expect(node.returned).To(BeFalse(), "only a restart of its proxy helps: %+v", node)
				Expect(node.at-upgraded).To(BeNumerically(">", (churnsAt-startsAt).Seconds()), "before the changes nothing hangs: %+v", node)
				expectStaleUntilRemoval(r, node)
			}
		}
		Expect(hung).To(BeNumerically(">", 0), "no seed of %v shows the hang; its time depends on the build of hitless", seedSeeds)
	})

	It("loses no node and no connection with the bundled proxier after the same steps", func() {
		for _, seed := range seedSeeds {
			result, h := seeded[name("bundled", seed)].Finished()
			Expect(suites.CheckLossless(result.Report)).To(Succeed())
			lost, _ := nodesLost(h)
			Expect(lost).To(BeEmpty(), "seed %d", seed)
			Expect(result.Report.Totals.Attempts).To(BeNumerically(">=", 2*seedEnds.Seconds()), "two attempts each second")
		}
	})
})

// expectStaleUntilRemoval expects an outage over a node that was lost: its table led to a pod that had exited. The load balancer removed the
// node by its health checks, and until then clients lost connections.
func expectStaleUntilRemoval(r *analysis.Report, node lostNode) {
	GinkgoHelper()
	const slack = 5.0 // seconds: an attempt over one node each second, and its time limit of 3 s
	var found []string
	for _, l := range r.Lanes {
		for _, o := range l.Outages {
			lasted := node.at - o.From
			if o.Node == node.name && lasted > (checkFall-2)*checkEvery.Seconds()-slack && lasted < (checkFall+1)*checkEvery.Seconds()+slack &&
				o.To < node.at+slack && strings.Contains(o.Cause.Text, node.name+" kept ") && strings.Contains(o.Cause.Text, " in IPVS ") {
				return
			}
			found = append(found, fmt.Sprintf("%s +%.1f to +%.1f s: %s", o.Node, o.From, o.To, o.Cause.Text))
		}
	}
	Fail(fmt.Sprintf("no outage of a stale table ends with the removal of %s at +%.1f s: %s", node.name, node.at, strings.Join(found, "; ")))
}

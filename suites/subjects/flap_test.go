//go:build lab

package subjects

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

// flapRate is low, in attempts per second: the outages last for seconds, and idle virtual time is skipped.
const flapRate = 4

// flapWatch contains three passes of kube-proxy's graceful termination manager, which runs once a minute.
const flapWatch = 200 * time.Second

// startFlap starts a run in which each of two pods becomes unready and ready again while connections are open.
func startFlap(ctx context.Context, dir, version string) *suites.Future {
	return suites.Start(ctx, dir, "flap-"+version, run.Options{Scenario: "flap", LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: 1, Subject: "kube-proxy@" + version + "/ipvs"}, Seed: 1, Rate: flapRate,
		Set: map[string]string{"antiAffinity": "off", "openConnections": "8", "watch": flapWatch.String()}})
}

// watchPhase returns the lane of new connections, and when the open connections were closed. After that time only the proxy acts.
func watchPhase(name string) (lane analysis.LaneReport, from float64) {
	GinkgoHelper()
	r := runs.Report(name)
	lane = suites.LaneOf(r, "tcp-new")
	Expect(lane.Attempts).To(BeNumerically(">=", flapWatch.Seconds()*flapRate))
	for _, e := range r.Events {
		if e.Kind == record.KindStep && e.Object == "watch" && from == 0 {
			from = e.At
		}
	}
	Expect(from).To(BeNumerically(">", 0))
	return lane, from
}

// expectOpenConnections expects four open connections to each of two pods before the scenario. The bug needs them, because only
// connections are terminated gracefully.
func expectOpenConnections(name string) {
	GinkgoHelper()
	_, history, err := runs[name].Wait()
	Expect(err).NotTo(HaveOccurred())
	long, began := 0, time.Duration(0)
	for e, err := range history.Events() {
		Expect(err).NotTo(HaveOccurred())
		if b, is := e.Body.(record.Lane); is && b.Protocol == "tcp-long" && !b.Control {
			long = int(b.ID)
		}
		if e.Kind() == record.KindPhase && e.Object == "scenario" {
			began = e.At
		}
	}
	open := map[string]map[string]bool{}
	for a, err := range history.Attempts() {
		Expect(err).NotTo(HaveOccurred())
		if int(a.Lane) == long && a.Intended < began && a.Class == record.OK {
			if open[a.Backend] == nil {
				open[a.Backend] = map[string]bool{}
			}
			open[a.Backend][a.Source.String()] = true
		}
	}
	Expect(open).To(HaveLen(2))
	for pod, connections := range open {
		Expect(connections).To(HaveLen(4), pod)
	}
}

// expectRejectedEachMinute expects the bug: each minute the graceful termination manager deletes both endpoints in use. New
// connections are rejected until the next sync adds the endpoints again, at most 30 s later.
func expectRejectedEachMinute(name string) {
	GinkgoHelper()
	expectOpenConnections(name)
	lane, from := watchPhase(name)
	Expect(len(lane.Outages)).To(BeNumerically(">=", 3), "%+v", lane.Outages)
	for i, o := range lane.Outages {
		Expect(o.From).To(BeNumerically(">", from))
		Expect(o.Classes).To(HaveKeyWithValue(record.Rejected.String(), o.Failed()), "%+v", o)
		Expect(o.LowerMs).To(BeNumerically(">", 1000), "%+v", o)
		Expect(o.UpperMs).To(BeNumerically("<", 31_000), "%+v", o)
		Expect(o.Cause.Event).To(Equal("kernel removed"), "%+v", o)
		if i > 0 {
			Expect(o.From-lane.Outages[i-1].From).To(BeNumerically("~", 60, 1), "%+v", lane.Outages)
		}
	}
}

// expectNoneDropped expects no dropped new connection, during the flaps and after them.
func expectNoneDropped(name string) {
	GinkgoHelper()
	expectOpenConnections(name)
	lane, _ := watchPhase(name)
	Expect(lane.Dropped).To(BeZero(), "%+v", lane.Outages)
}

func expectSignature(name string, want museum.Answer) {
	GinkgoHelper()
	f := finding("k8s-71515", name)
	Expect(f.Answer).To(Equal(want), "%q", f.Reasons)
}

var _ = Describe("kubernetes#71515: pods that become unready and ready again while connections are open", Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		dir := GinkgoT().TempDir()
		for _, version := range []string{"v1.12.1", "v1.12.2", "v1.12.4"} {
			runs["flap "+version] = startFlap(ctx, dir, version)
		}
	})

	It("reject new connections once a minute from then on with kube-proxy v1.12.2", func() { expectRejectedEachMinute("flap v1.12.2") })
	It("drop no new connection with v1.12.4", func() { expectNoneDropped("flap v1.12.4") })
	It("have the signature of k8s-71515 with v1.12.2", func() { expectSignature("flap v1.12.2", museum.Seen) })
	It("do not have the signature of k8s-71515 with v1.12.4", func() { expectSignature("flap v1.12.4", museum.NotSeen) })
	It("drop no new connection with v1.12.1, which has no graceful termination yet", func() { expectNoneDropped("flap v1.12.1") })

	// The red twin of the next spec.
	It("drop every open connection with v1.12.1 (kubernetes#57841)", func() {
		long := suites.LaneOf(runs.Report("flap v1.12.1"), "tcp-long")
		Expect(long.Dropped).To(BeNumerically(">=", 8))
		for _, o := range long.Outages {
			Expect(o.Classes).To(HaveKeyWithValue(record.ReplyTimeout.String(), o.Failed()), "%+v", o)
			Expect(o.Cause.Event).To(Equal("pod unready"), "%+v", o)
		}
	})

	It("keep every open connection since v1.12.2", func() {
		for _, name := range []string{"flap v1.12.2", "flap v1.12.4"} {
			Expect(suites.LaneOf(runs.Report(name), "tcp-long").Dropped).To(BeZero(), name)
		}
	})
})

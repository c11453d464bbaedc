//go:build lab

// Package museum tests the signatures of historical bugs with the original binaries. Each bug has a subject with it and one without,
// which run with the same seed.
package museum

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

func TestMuseum(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "museum")
}

// bug is a museum entry with a subject that has it and one that does not. Package subjects tests k8s-71071, k8s-71515 and k8s-85643,
// and package restart shows k8s-92019 in CI.
type bug struct {
	id, with, without string            // subjects
	set, withoutSet   map[string]string // parameters of both runs, and additional ones of the run without the bug
	nodes             int               // 0 for the default; each node's kube-proxy adds to the duration of the run
	label             Labels
}

// labelWithout is the label of the spec without the bug, which is not in `make smoke`.
func (b bug) labelWithout() Labels { return suites.Nightly }

var bugs = []bug{
	{id: "k8s-92019", label: slices.Concat(suites.Smoke, suites.Nightly), with: "kube-proxy@v1.25.3/ipvs", without: "kube-proxy@v1.26.0/ipvs",
		nodes: 2},
	{id: "k8s-122740", label: suites.Nightly, with: "kube-proxy@v1.26.0/iptables", without: "kube-proxy@v1.37.1/iptables"},
	{id: "k8s-139628", label: suites.Nightly, with: "kube-proxy@v1.36.1/iptables", without: "kube-proxy@v1.37.1/iptables"},
	{id: "ipvs-mode-switch", label: suites.Nightly, with: "kube-proxy@v1.37.1/iptables", without: "kube-proxy@v1.37.1/iptables",
		set: map[string]string{"to": "kube-proxy@v1.37.1/ipvs"}, withoutSet: map[string]string{"cleanup": "on"}},
}

// rate is low because the outages last for a minute or more.
const rate = 20

var runs = map[string]*suites.Future{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	for _, b := range bugs {
		if !suites.Selected(b.label) {
			continue
		}
		entry, err := museum.Find(b.id)
		Expect(err).NotTo(HaveOccurred())
		begin := func(name, subject string, more ...map[string]string) {
			set := maps.Clone(entry.Set)
			for _, m := range more {
				maps.Copy(set, m)
			}
			runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: entry.Scenario, Set: set, LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: b.nodes, Subject: subject}, Seed: 1,
				Rate: rate})
		}
		begin(b.id+" with", b.with, b.set)
		if suites.Selected(b.labelWithout()) {
			begin(b.id+" without", b.without, b.set, b.withoutSet)
		}
	}
})

func expectAnswer(id, name string, want museum.Answer) {
	GinkgoHelper()
	_, history, err := runs[name].Wait()
	Expect(err).NotTo(HaveOccurred())
	record, err := museum.Open(history)
	Expect(err).NotTo(HaveOccurred())
	entry, err := museum.Find(id)
	Expect(err).NotTo(HaveOccurred())
	f := entry.Judge(record)
	Expect(f.Answer).To(Equal(want), "%q", f.Reasons)
}

var _ = Describe("the signature of a bug", func() {
	for _, b := range bugs {
		It("of "+b.id+" is seen with "+b.with, b.label, func() { expectAnswer(b.id, b.id+" with", museum.Seen) })
		It(fmt.Sprintf("of %s is not seen with %s %v", b.id, b.without, b.withoutSet), b.labelWithout(), func() { expectAnswer(b.id, b.id+" without", museum.NotSeen) })
	}
})

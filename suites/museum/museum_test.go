//go:build lab

// Package museum holds the signatures of historical bugs against the original binaries: each with a subject that has the bug and one
// that does not, on the same seed.
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

// visit is of a bug, with a subject that has it and one that does not, or has it not with these parameters. Two bugs more are in
// suites/subjects, beside what else is known of them.
type visit struct {
	id, has, hasNot string
	set, hasNotSet  map[string]string
	nodes           int // 0 means as many as a run has by default; each node's kube-proxy takes its time to start
	label           Labels
}

// twinLabel is that of the subject without the bug. To see the bug is smoke enough.
func (v visit) twinLabel() Labels {
	if slices.Equal(v.label, suites.Smoke) {
		return Label()
	}
	return v.label
}

var visits = []visit{
	{id: "k8s-92019", label: suites.Smoke, has: "kube-proxy@v1.25.3/ipvs", hasNot: "kube-proxy@v1.26.0/ipvs",
		nodes: 2},
	{id: "k8s-122740", label: suites.Nightly, has: "kube-proxy@v1.26.0/iptables", hasNot: "kube-proxy@v1.37.1/iptables"},
	{id: "k8s-139628", label: suites.Nightly, has: "kube-proxy@v1.36.1/iptables", hasNot: "kube-proxy@v1.37.1/iptables"},
	{id: "ipvs-mode-switch", label: suites.Nightly, has: "kube-proxy@v1.37.1/iptables", hasNot: "kube-proxy@v1.37.1/iptables",
		set: map[string]string{"to": "kube-proxy@v1.37.1/ipvs"}, hasNotSet: map[string]string{"cleanup": "on"}},
}

// rate is low: what is looked for lasts for a minute and more.
const rate = 20

var runs = map[string]*suites.Future{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	for _, v := range visits {
		if !suites.Selected(v.label) {
			continue
		}
		entry, err := museum.Find(v.id)
		Expect(err).NotTo(HaveOccurred())
		begin := func(name, subject string, more ...map[string]string) {
			set := maps.Clone(entry.Set)
			for _, m := range more {
				maps.Copy(set, m)
			}
			runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: entry.Scenario, Set: set, LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: v.nodes, Subject: subject}, Seed: 1,
				Rate: rate})
		}
		begin(v.id+" seen", v.has, v.set)
		if suites.Selected(v.twinLabel()) {
			begin(v.id+" not seen", v.hasNot, v.set, v.hasNotSet)
		}
	}
})

func finds(id, name string, want museum.Answer) {
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
	for _, v := range visits {
		It("of "+v.id+" is seen with "+v.has, v.label, func() { finds(v.id, v.id+" seen", museum.Seen) })
		It(fmt.Sprintf("of %s is not seen with %s %v", v.id, v.hasNot, v.hasNotSet), v.twinLabel(), func() { finds(v.id, v.id+" not seen", museum.NotSeen) })
	}
})

//go:build lab

// Package museum holds the signatures of historical bugs against the original binaries: each with a subject that has the bug and one
// that does not, on the same seed.
package museum

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

func TestMuseum(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "museum")
}

// visits are a bug, a subject that has it and one that does not. Two bugs more are in suites/subjects, beside what else is known of
// them.
var visits = []struct{ id, has, hasNot string }{
	{"k8s-92019", "kube-proxy@v1.25.3/ipvs", "kube-proxy@v1.26.0/ipvs"},
	{"k8s-122740", "kube-proxy@v1.26.0/iptables", "kube-proxy@v1.37.1/iptables"},
	{"k8s-139628", "kube-proxy@v1.36.1/iptables", "kube-proxy@v1.37.1/iptables"},
}

// rate is low: what is looked for lasts for a minute and more.
const rate = 50

var runs = map[string]*suites.Future{}

var _ = BeforeSuite(func() {
	if !suites.Selected(suites.Nightly) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.Clean)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	for _, v := range visits {
		entry, err := museum.Find(v.id)
		Expect(err).NotTo(HaveOccurred())
		for name, subject := range map[string]string{v.id + " seen": v.has, v.id + " not seen": v.hasNot} {
			runs[name] = suites.Begin(ctx, dir, name, run.Options{Scenario: entry.Scenario, Set: entry.Set, ControlPlane: "replay", Seed: 1,
				Rate: rate, Subject: subject})
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

var _ = Describe("the signature of a bug", suites.Nightly, func() {
	for _, v := range visits {
		It("of "+v.id+" is seen with "+v.has, func() { finds(v.id, v.id+" seen", museum.Seen) })
		It("of "+v.id+" is not seen with "+v.hasNot, func() { finds(v.id, v.id+" not seen", museum.NotSeen) })
	}
})

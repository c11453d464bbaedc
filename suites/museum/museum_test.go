//go:build lab

// Package museum tests the signatures of historical bugs with the original binaries. Each bug has a subject with it and one without,
// which run with the same seed.
package museum

import (
	"context"
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

// sample is a museum entry whose specimens the suite runs. Package subjects tests k8s-71071, k8s-71515 and k8s-85643, and `make museum`
// runs all entries on several seeds.
type sample struct {
	id    string
	nodes int    // 0 for the default; each node's kube-proxy adds to the duration of the run
	label Labels // of the specimen with the bug; the one without is nightly
}

var samples = []sample{
	{id: "k8s-92019", label: slices.Concat(suites.Smoke, suites.Nightly), nodes: 2},
	{id: "k8s-122740", label: suites.Nightly},
	{id: "k8s-139628", label: suites.Nightly},
	{id: "k8s-102314", label: suites.Nightly},
}

// rate is low because the outages last for a minute or more.
const rate = 20

var runs = map[string]*suites.Future{}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	for _, s := range samples {
		if !suites.Selected(s.label) {
			continue
		}
		entry, err := museum.Find(s.id)
		Expect(err).NotTo(HaveOccurred())
		begin := func(name string, specimen museum.Specimen) {
			set := maps.Clone(entry.Set)
			maps.Copy(set, specimen.Set)
			runs[name] = suites.Start(ctx, dir, name, run.Options{Scenario: entry.Scenario, Set: set,
				LabOptions: site.LabOptions{ControlPlane: "replay", Nodes: s.nodes, Subject: specimen.Subject}, Seed: 1, Rate: rate})
		}
		begin(s.id+" with", entry.Bad)
		if suites.Selected(suites.Nightly) {
			begin(s.id+" without", entry.Good)
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
	for _, s := range samples {
		It("of "+s.id+" is seen in the version with the bug", s.label, func() { expectAnswer(s.id, s.id+" with", museum.Seen) })
		It("of "+s.id+" is not seen without the bug", suites.Nightly, func() { expectAnswer(s.id, s.id+" without", museum.NotSeen) })
	}
})

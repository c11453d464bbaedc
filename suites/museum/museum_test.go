//go:build lab

// Package museum tests the signatures of historical bugs with the original programs: each in a version with the bug and in one without it,
// with the same seed. `make museum` repeats all of them on several seeds.
package museum

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

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

// sample are bugs with a fixed version, whose both runs are in CI: cheap ones of all modes, of scenarios and timelines, and of versions from
// v1.12 to v1.36. Package subjects has two pairs more, k8s-71515 and k8s-85643 behind HAProxy, which makes ten.
var sample = []string{smokeBug, "k8s-122740", "k8s-139516", "k8s-139628", "k8s-50977", "k8s-57841", "k8s-71834", "k8s-71894"}

// onTwoNodes are those of the sample whose trigger needs no third node.
var onTwoNodes = []string{smokeBug, "k8s-139628", "k8s-57841"}

// smokeBug is the bug whose run with it is in `make smoke`.
const smokeBug = "k8s-92019"

var runs = map[string]*suites.Future{}

// labelsOf returns the labels of the specs of a bug, with it and without it.
func labelsOf(id string) (bad, good Labels) {
	switch {
	case id == smokeBug:
		return suites.Smoke, nil
	case slices.Contains(sample, id):
		return nil, nil
	}
	return suites.Nightly, suites.Nightly
}

var _ = BeforeSuite(func() {
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(suites.RemoveProgram)
	DeferCleanup(cancel)
	dir := GinkgoT().TempDir()
	for _, e := range museum.All() {
		bad, good := labelsOf(e.ID)
		start(ctx, dir, e.ID+" bad", e, e.Bad, bad)
		start(ctx, dir, e.ID+" good", e, e.Good, good)
	}
})

// start starts a run if its spec is selected.
func start(ctx context.Context, dir, name string, e museum.Entry, s museum.Specimen, labels Labels) {
	GinkgoHelper()
	if !suites.Selected(labels) {
		return
	}
	set := map[string]string{"baseline": "10s"} // half of the usual one: its canary lanes cost much of a run's time
	if slices.Contains(sample, e.ID) {
		set["settle"] = "5s" // the losses are over before
	}
	maps.Copy(set, e.Set)
	maps.Copy(set, s.Set)
	o := run.Options{Set: set, LabOptions: site.LabOptions{ControlPlane: "replay", Subject: s.Subject, Deadline: time.Hour}, Seed: 1}
	if e.Timeline == nil {
		o.Rate = e.UsualRate()
	}
	if slices.Contains(onTwoNodes, e.ID) {
		o.Nodes = 2
	}
	Expect(o.UseEntry(e)).To(Succeed())
	runs[name] = suites.Start(ctx, dir, name, o)
}

func expectAnswer(e museum.Entry, name string, want museum.Answer) {
	GinkgoHelper()
	result, _, err := runs[name].Wait()
	Expect(err).NotTo(HaveOccurred())
	f, err := run.JudgeBug(result.Dir, e)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Answer).To(Equal(want), "%q", f.Reasons)
}

var _ = Describe("the signature of a bug", func() {
	for _, e := range museum.All() {
		bad, good := labelsOf(e.ID)
		It("of "+e.ID+" is seen in "+e.Bad.String(), bad, func() { expectAnswer(e, e.ID+" bad", museum.Seen) })
		It("of "+e.ID+" is not seen in "+e.Good.String(), good, func() { expectAnswer(e, e.ID+" good", museum.NotSeen) })
	}
})

//go:build lab

package subjects

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

// finding judges one of the suite's runs for the signature of a bug.
func finding(id, name string) run.BugResult {
	GinkgoHelper()
	result, _, err := runs[name].Wait()
	Expect(err).NotTo(HaveOccurred())
	return judged(id, result)
}

// judged searches the record of a run for a bug.
func judged(id string, result *run.Result) run.BugResult {
	GinkgoHelper()
	entry, err := museum.Find(id)
	Expect(err).NotTo(HaveOccurred())
	found, err := run.JudgeBug(result.Dir, entry)
	Expect(err).NotTo(HaveOccurred())
	return found
}

var _ = DescribeTable("the signature of k8s-85643", func(name string, want museum.Answer) {
	f := finding("k8s-85643", name)
	Expect(f.Answer).To(Equal(want), "%q", f.Reasons)
},
	Entry("is seen with kube-proxy v1.25.3 behind HAProxy", "1.25.3 HAProxy", museum.Seen),
	Entry("is not seen with kube-proxy v1.26.0 behind HAProxy", "1.26.0 HAProxy", museum.NotSeen),
	Entry("is seen with kube-proxy v1.25.3", suites.Nightly, "1.25.3", museum.Seen),
	Entry("is not seen with kube-proxy v1.26.0", suites.Nightly, "1.26.0", museum.NotSeen),
	Entry("is not seen with v1.25.3 and the feature gate on", suites.Nightly, "1.25.3 with", museum.NotSeen),
	Entry("is seen with v1.26.0 and the feature gate off", suites.Nightly, "1.26.0 without", museum.Seen),
)

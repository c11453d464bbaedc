//go:build lab

package subjects

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites"
)

// finding judges one of the suite's runs for the signature of a bug.
func finding(id, name string) museum.Finding {
	GinkgoHelper()
	_, history, err := runs[name].Wait()
	Expect(err).NotTo(HaveOccurred())
	record, err := museum.Open(history)
	Expect(err).NotTo(HaveOccurred())
	entry, err := museum.Find(id)
	Expect(err).NotTo(HaveOccurred())
	return entry.Judge(record)
}

var _ = DescribeTable("the signature of k8s-85643", func(name string, want museum.Answer) {
	f := finding("k8s-85643", name)
	Expect(f.Answer).To(Equal(want), "%q", f.Reasons)
},
	Entry("is seen with kube-proxy v1.25.3", "1.25.3", museum.Seen),
	Entry("is not seen with kube-proxy v1.26.0", "1.26.0", museum.NotSeen),
	Entry("is not seen with v1.25.3 and the feature gate on", suites.Nightly, "1.25.3 with", museum.NotSeen),
	Entry("is seen with v1.26.0 and the feature gate off", suites.Nightly, "1.26.0 without", museum.Seen),
)

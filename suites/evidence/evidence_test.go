//go:build lab

// Package evidence tests that a committed result can be repeated: a short form of `make evidence` and `hitless results check --sample`.
package evidence

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/suites"
)

func TestEvidence(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "evidence")
}

var _ = AfterSuite(func() { Expect(suites.RemoveProgram()).To(Succeed()) })

// history is the hash of a run's history in a kept comparison.
var history = regexp.MustCompile(`("historySha256": )"[0-9a-f]{64}"`)

var _ = Describe("A result that was kept", Ordered, func() {
	var dir, kept string
	check := func(ctx SpecContext, want int, file string) {
		GinkgoHelper()
		Expect(suites.Execute(ctx, want, "results", "check", file, "--sample", "1", "--out", filepath.Join(dir, "repeated"))).To(Equal(want))
	}

	BeforeAll(func(ctx SpecContext) {
		dir = GinkgoT().TempDir()
		kept = filepath.Join(dir, "kept", "fault.json")
		compared := filepath.Join(dir, "compared")
		Expect(suites.Execute(ctx, 1, "compare", "fault", "--subject", "bundled", "--subject", "kube-proxy@v1.37.1/nftables", "--runs", "1", "--controlplane", "replay",
			"--rate", "20", "--set", "baseline=10s", "--set", "settle=10s", "--out", compared)).To(Equal(1))
		Expect(suites.Execute(ctx, 0, "results", "keep", compared, kept)).To(BeZero())
	})

	It("tells what made it, and has the same history when it is repeated", func(ctx SpecContext) { check(ctx, 0, kept) })

	It("is listed if its history is another one", func(ctx SpecContext) {
		text, err := os.ReadFile(kept)
		Expect(err).NotTo(HaveOccurred())
		Expect(history.FindAll(text, -1)).To(HaveLen(2), "runs with a history")
		changed := history.ReplaceAll(text, []byte(`${1}"`+strings.Repeat("0", 64)+`"`))
		other := filepath.Join(dir, "other", "fault.json")
		Expect(os.MkdirAll(filepath.Dir(other), 0o755)).To(Succeed())
		Expect(os.WriteFile(other, changed, 0o644)).To(Succeed())
		check(ctx, 1, other)
	})
})

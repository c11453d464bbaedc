//go:build lab

// Package cost tests that the cost of a change in the bundled proxier does not grow with the number of Services.
package cost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/suites"
)

func TestCost(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cost")
}

var _ = AfterSuite(func() { Expect(suites.RemoveProgram()).To(Succeed()) })

var _ = Describe("the cost of a change", func() {
	It("does not grow with the number of Services, and is the same number of instructions when measured again", suites.Smoke, func(ctx context.Context) {
		first := measure(ctx, "bundled", 20, 400)
		Expect(bench.Gate(first, "bundled")).To(Succeed())
		Expect(measure(ctx, "bundled", 20, 400)).To(Equal(first))
	})

	It("grows with kube-proxy in mode ipvs, the red twin of the gate for time and messages", func(ctx context.Context) {
		const twin = "kube-proxy@v1.37.1/ipvs"
		Expect(bench.Gate(measure(ctx, twin, 20, 400), twin)).To(MatchError(And(
			ContainSubstring("netlink messages grows"), ContainSubstring("one endpoint, ms grows"))))
	})

	It("grows with kube-proxy in mode nftables, another red twin", suites.Nightly, func(ctx context.Context) {
		const twin = "kube-proxy@v1.37.1/nftables"
		Expect(bench.Gate(measure(ctx, twin, 20, 400), twin)).To(MatchError(ContainSubstring("one endpoint, ms grows")))
	})

	It("does not grow up to 1,000 Services", suites.Nightly, func(ctx context.Context) {
		Expect(bench.Gate(measure(ctx, "bundled", 100, 1000), "bundled")).To(Succeed())
	})
})

func measure(ctx context.Context, subject string, services ...int) []bench.Row {
	GinkgoHelper()
	s, err := bench.ParseSubject(subject)
	Expect(err).NotTo(HaveOccurred())
	program, err := suites.Program()
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "hitless-cost-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	var mu sync.Mutex
	measured, err := run.Bench(ctx, run.Options{Seed: 1, Program: program, Out: filepath.Join(dir, "bench"), Progress: progress.Lines(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(GinkgoWriter, line)
	})}, bench.Plan{Subjects: []bench.Subject{s}, Services: services, Repeat: 5})
	Expect(err).NotTo(HaveOccurred())
	Expect(measured).NotTo(BeNil())
	return measured.Rows
}

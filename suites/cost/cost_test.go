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

var _ = Describe("the cost of a change of the bundled proxier", Ordered, ContinueOnFailure, func() {
	var first []bench.Row
	BeforeAll(func(ctx context.Context) { first = measure(ctx, "bundled", 20, 400) })

	It("does not grow with the number of Services, and is the same number of instructions when measured again", suites.Smoke, func(ctx context.Context) {
		Expect(bench.Gate(first, "bundled")).To(Succeed())
		Expect(measure(ctx, "bundled", 20, 400)).To(Equal(first))
	})

	It("is another number of instructions with one more Service, the red twin of the repetition", func(ctx context.Context) {
		more := measure(ctx, "bundled", 21, 400)
		Expect(more).To(HaveLen(2))
		more[0].Services = first[0].Services
		Expect(more[0]).NotTo(Equal(first[0]))
	})
})

var _ = It("the cost of a change of the bundled proxier does not grow up to 1,000 Services", suites.Nightly, func(ctx context.Context) {
	Expect(bench.Gate(measure(ctx, "bundled", 100, 1000), "bundled")).To(Succeed())
})

// The red twins of the gate. Each of its four limits is exceeded by the first.
var _ = Describe("the cost of a change of another proxy", func() {
	It("grows with kube-proxy in mode ipvs, in time and messages, and exceeds each limit", func(ctx context.Context) {
		const twin = "kube-proxy@v1.37.1/ipvs"
		err := bench.Gate(measure(ctx, twin, 20, 400), twin)
		Expect(err).To(MatchError(And(ContainSubstring("netlink messages grows"), ContainSubstring("one endpoint, ms grows"))))
		for _, limited := range []string{"one endpoint, ms", "CPU of one endpoint, ms", "one Service, ms", "netlink messages"} {
			Expect(err).To(MatchError(ContainSubstring("at 400 Services: "+limited+" is ")), limited)
		}
	})

	It("grows with kube-proxy in mode nftables, another red twin", suites.Nightly, func(ctx context.Context) {
		const twin = "kube-proxy@v1.37.1/nftables"
		Expect(bench.Gate(measure(ctx, twin, 20, 400), twin)).To(MatchError(ContainSubstring("one endpoint, ms grows")))
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

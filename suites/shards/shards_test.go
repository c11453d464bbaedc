//go:build lab

// Package shards tests that shards, which are processes of their own, make what one process makes: each history, and the files of the whole.
package shards

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestShards(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "shards")
}

var _ = AfterSuite(func() { Expect(suites.RemoveProgram()).To(Succeed()) })

// call is a call with shards, and the files that are functions of the histories.
type call struct {
	args  []string
	files []string
	fails bool // its exit code is 1
	worst int  // exit code of its shards; 0 of some, where it is 1
	many  bool // a shard makes many runs, and is killed after the first one
}

var _ = DescribeTable("Shards make the whole", func(ctx SpecContext, c call) {
	dir := GinkgoT().TempDir()
	whole, parts := filepath.Join(dir, "whole"), []string{filepath.Join(dir, "1"), filepath.Join(dir, "2")}
	code := 0
	if c.fails {
		code = 1
	}
	Expect(suites.Execute(ctx, code, append(c.args, "--out", whole)...)).To(Equal(code))

	By("killing the first shard during a run, and running it again")
	killed := suites.Command(append(c.args, "--shard", "1/2", "--out", parts[0])...)
	Expect(killed.Start()).To(Succeed())
	// A shard of one or two runs may end as soon as it has a record, so that it is killed when a run begins.
	Eventually(ctx, func() bool {
		return isUnderWay(parts[0]) && (!c.many || len(historiesOf(parts[0])) > 0)
	}).WithTimeout(20 * time.Minute).Should(BeTrue())
	Expect(killed.Process.Kill()).To(Succeed())
	Expect(killed.Wait()).NotTo(Succeed())
	Expect(killed.ProcessState.ExitCode()).To(Equal(-1), "the shard has ended by itself")
	merged := filepath.Join(dir, "merged")
	var codes []int
	for i, part := range parts {
		codes = append(codes, suites.Execute(ctx, 0, append(c.args, "--shard", fmt.Sprintf("%d/2", i+1), "--out", part)...))
		if i == 0 { // a whole of one part would be wrong
			Expect(suites.Execute(ctx, 2, "merge", part, "--out", merged)).To(Equal(2))
		}
	}
	Expect(codes).To(HaveEach(BeElementOf(0, c.worst)))
	Expect(slices.Max(codes)).To(Equal(c.worst))
	Expect(suites.Execute(ctx, 2, "merge", parts[0], parts[0], "--out", merged)).To(Equal(2))
	Expect(suites.Execute(ctx, code, "merge", parts[1], parts[0], "--out", merged)).To(Equal(code))

	By("comparing the files")
	histories := 0
	for _, name := range append(c.files, historiesOf(whole)...) {
		want, err := os.ReadFile(filepath.Join(whole, name))
		Expect(err).NotTo(HaveOccurred())
		got, err := os.ReadFile(filepath.Join(merged, name))
		Expect(err).NotTo(HaveOccurred())
		if strings.HasSuffix(name, "attempts.bin") {
			Expect(bytes.Equal(got, want)).To(BeTrue(), "%s of the whole and of the merged shards differ", name)
			histories++
			continue
		}
		Expect(string(got)).To(Equal(string(want)), "%s of the whole and of the merged shards differ", name) // which shows where
	}
	Expect(histories).To(BeNumerically(">=", 2))
	Expect(historiesOf(merged)).To(Equal(historiesOf(whole)))
},
	Entry("of a comparison", call{args: []string{"compare", "fault", "--subject", "bundled", "--subject", "kube-proxy@v1.37.1/nftables", "--runs", "2", "--controlplane", "replay", "--rate", "20",
		"--set", "baseline=10s", "--set", "settle=10s"}, files: []string{"compare.json", "compare.html", "compare.md"}, fails: true}),
	Entry("of a conformance suite", suites.Nightly, call{args: []string{"conformance", "--subject", "kube-proxy@v1.37.1/nftables", "--label-filter", "routing"}, files: []string{"conformance.yaml", "conformance.html"}}),
	Entry("of a soak", call{args: []string{"soak", "--for", "5m", "--seeds", "1..2", "--controlplane", "replay"}}),
	Entry("of a search of the museum", suites.Nightly, call{args: []string{"museum", "run", "--all", "--subject", "kube-proxy@v1.37.1/nftables", "--controlplane", "replay"}, files: []string{"museum.json", "junit.xml"}, fails: true, worst: 1, many: true}),
)

// isUnderWay reports whether a run has its guest, below a folder. The comparison's own folder for unfinished results does not count.
func isUnderWay(dir string) (found bool) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not yet, or moved meanwhile
		}
		if err == nil && d.IsDir() && d.Name() == reports.UnfinishedDir && filepath.Dir(path) != dir {
			found, err = true, fs.SkipAll
		}
		return err
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// historiesOf are the files of all histories below a folder, relative to it.
func historiesOf(dir string) (files []string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not yet, or moved meanwhile
		}
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "/history/") {
			name, relErr := filepath.Rel(dir, path)
			files, err = append(files, name), relErr
		}
		return err
	})
	Expect(err).NotTo(HaveOccurred())
	return files
}

//go:build lab

// Package shards tests that shards, which are processes of their own, make what one process makes: each history, and the files of the whole.
package shards

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites"
)

func TestShards(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "shards")
}

var _ = AfterSuite(func() { Expect(suites.RemoveProgram()).To(Succeed()) })

// call is a call with shards.
type call struct {
	args  []string
	fails bool // its exit code is 1
	worst int  // exit code of its shards; 0 of some, where it is 1
	many  bool // a shard makes many runs, and is killed after the first one
	suite bool // it is a conformance suite, whose reports of Ginkgo have times
}

var _ = DescribeTable("Shards make the whole", func(ctx SpecContext, c call) {
	dir := suites.FolderOf("shards")
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
		return isUnderWay(parts[0]) && (!c.many || runsOf(parts[0]) > 0)
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
	Expect(runsOf(whole)).To(BeNumerically(">=", 2))
	if found := differences(whole, merged, c.suite); len(found) > 0 {
		Fail("the whole and the merged shards differ:\n" + strings.Join(found, "\n"))
	}
},
	Entry("of a comparison", call{args: comparison("1"), fails: true}),
	Entry("of a comparison of two seeds", suites.Nightly, call{args: comparison("2"), fails: true}),
	Entry("of a conformance suite", suites.Nightly, call{args: []string{"conformance", "--subject", "kube-proxy@v1.37.1/nftables", "--label-filter", "routing"}, suite: true}),
	Entry("of a soak", call{args: []string{"soak", "--for", "5m", "--seeds", "1..2", "--controlplane", "replay"}}),
	Entry("of a search of the museum", suites.Nightly, call{args: []string{"museum", "run", "--all", "--subject", "kube-proxy@v1.37.1/nftables", "--controlplane", "replay"}, fails: true, worst: 1, many: true}),
)

// comparison is the call of a comparison with a number of runs of each subject.
func comparison(runs string) []string {
	return []string{"compare", "fault", "--subject", "bundled", "--subject", "kube-proxy@v1.37.1/nftables", "--runs", runs, "--controlplane", "replay", "--rate", "20",
		"--set", "baseline=10s", "--set", "settle=10s"}
}

// The red twin: without this check, merged shards that differ would pass.
var _ = It("A file of the merged shards that is missing, is new or has another content is found", func() {
	dir := GinkgoT().TempDir()
	whole, merged := filepath.Join(dir, "whole"), filepath.Join(dir, "merged")
	write := func(name, text string) {
		Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
		Expect(os.WriteFile(name, []byte(text), 0o600)).To(Succeed())
	}
	files := []string{"seed-1/report.json", "seed-1/history/attempts.bin", "seed-1/logs/proxy-node-1.log", "seed-1/host.json", "seed-1/.lock", ".lock", "compare.md"}
	for _, name := range files {
		write(filepath.Join(whole, name), "the whole\n")
		write(filepath.Join(merged, name), "the whole\n")
	}
	Expect(differences(whole, merged, false)).To(BeEmpty())
	for _, name := range files {
		write(filepath.Join(merged, name), "another\n")
	}
	Expect(differences(whole, merged, false)).To(HaveExactElements(HavePrefix("compare.md"), HavePrefix("seed-1/history/attempts.bin"), HavePrefix("seed-1/logs/proxy-node-1.log"), HavePrefix("seed-1/report.json")))
	Expect(os.RemoveAll(filepath.Join(merged, "seed-1"))).To(Succeed())
	write(filepath.Join(merged, "compare.md"), "the whole\n")
	write(filepath.Join(merged, "shard.json"), "{}\n")
	Expect(differences(whole, merged, false)).To(HaveLen(6), "five files are missing, and one is new")

	const junit = `<testcase name="[It] answers" classname="conformance" status="%s" time="%d">`
	write(filepath.Join(whole, "junit.xml"), fmt.Sprintf(junit, "passed", 1))
	write(filepath.Join(merged, "junit.xml"), fmt.Sprintf(junit, "passed", 2))
	Expect(differences(whole, merged, true)).To(HaveLen(6))
	write(filepath.Join(merged, "junit.xml"), fmt.Sprintf(junit, "failed", 1))
	Expect(differences(whole, merged, true)).To(HaveLen(7))
})

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

// runsOf counts the records below a folder.
func runsOf(dir string) (n int) {
	GinkgoHelper()
	for _, name := range filesOf(dir) {
		if path.Base(name) == record.AttemptsFile {
			n++
		}
	}
	return n
}

// filesOf are the files below a folder, relative to it, in order.
func filesOf(dir string) (files []string) {
	GinkgoHelper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not yet, or moved meanwhile
		}
		if err == nil && d.Type().IsRegular() {
			name, relErr := filepath.Rel(dir, path)
			files, err = append(files, name), relErr
		}
		return err
	})
	Expect(err).NotTo(HaveOccurred())
	slices.Sort(files)
	return files
}

// differences are the files that only one of two folders has, and those with other contents than docs/shards.md allows.
func differences(whole, merged string, suite bool) (found []string) {
	GinkgoHelper()
	want, got := filesOf(whole), filesOf(merged)
	if suite {
		want = slices.DeleteFunc(want, ofProcess)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(want, got)))) {
		switch {
		case !slices.Contains(got, name):
			found = append(found, name+" is only in the whole")
		case !slices.Contains(want, name):
			found = append(found, name+" is only in the merged shards")
		default:
			if diff := cmp.Diff(promised(whole, name, suite), promised(merged, name, suite)); diff != "" {
				found = append(found, name+" (-whole +merged):\n"+diff)
			}
		}
	}
	return found
}

// ofProcess reports whether a file of a conformance suite is one by which the processes of a call share their runs, which needs no merge.
func ofProcess(name string) bool {
	return path.Dir(name) == "runs" && (path.Ext(name) == ".json" || strings.HasSuffix(name, ".json.lock"))
}

// specs finds those of a report by Ginkgo in JUnit's format, with their states.
var specs = regexp.MustCompile(`<testcase name="\[It\] [^"]*" classname="[^"]*" status="[^"]*"`)

// promised is what must be the same of a file. Locks and host.json are of a process and a machine; Ginkgo's reports have times and an order.
func promised(dir, name string, suite bool) string {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	Expect(err).NotTo(HaveOccurred())
	switch {
	case path.Base(name) == ".lock", path.Base(name) == record.HostFile, suite && name == "ginkgo.json":
		return ""
	case suite && name == reports.JUnitFile:
		all := specs.FindAllString(string(data), -1)
		Expect(all).NotTo(BeEmpty(), name)
		slices.Sort(all)
		return strings.Join(all, "\n")
	case path.Base(name) == record.AttemptsFile: // its differences as text would be unreadable
		return fmt.Sprintf("sha256 %x", sha256.Sum256(data))
	}
	return string(data)
}

package conformance

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/suites"
)

// The flags of the suite; the selection has Ginkgo's own: -ginkgo.label-filter, -ginkgo.focus and -ginkgo.skip.
var (
	subjectFlag    = flag.String("subject", "", "subject of the suite; without it and -kubeconfig the suite does not run")
	kubeconfigFlag = flag.String("kubeconfig", "", "live cluster of the suite")
	seedFlag       = flag.Int64("seed", 1, "seed of all runs")
	shardFlag      = flag.String("shard", "", "part I/N of the suite")
	outFlag        = flag.String("out", "", "folder for the results")
	pretendFlag    = flag.String("pretend", "", "tests only: no lab; runs are made up, and those with these names fail: a, list")
)

// TestConformance is the suite as a Go test: go test ./suites/conformance -args -subject=SUBJECT.
func TestConformance(t *testing.T) {
	if *subjectFlag == "" && *kubeconfigFlag == "" {
		t.Skip("this is the suite itself; it needs -args -subject=SUBJECT or -kubeconfig=FILE")
	}
	config, err := configOfFlags(t)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Register(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	ginkgo.RunSpecs(t, description)
}

func configOfFlags(t testing.TB) (c Config, err error) {
	suite, _ := ginkgo.GinkgoConfiguration()
	c = Config{Selection: Selection{Labels: suite.LabelFilter, Focus: suite.FocusStrings, Skip: suite.SkipStrings}, Out: *outFlag,
		Options: run.Options{Seed: *seedFlag, Live: &site.LiveOptions{Kubeconfig: *kubeconfigFlag}, LabOptions: site.LabOptions{Subject: *subjectFlag}},
		Command: "go test ./suites/conformance -args -subject=" + *subjectFlag}
	c.Progress = progress.Lines(func(line string) { fmt.Fprintln(os.Stderr, line) })
	if c.Selection.Shard, err = ParseShard(*shardFlag); err != nil {
		return c, err
	}
	if *pretendFlag != "" {
		c.Execute = pretend(t, strings.Split(*pretendFlag, ","))
		return c, nil
	}
	if !suite.DryRun {
		c.Options.Program, err = suites.Program()
		ginkgo.DeferCleanup(suites.RemoveProgram)
	}
	return c, err
}

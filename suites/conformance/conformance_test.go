package conformance

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/e2e-framework/klient/conf"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites"
)

// The flags of the suite; the selection has Ginkgo's own: -ginkgo.label-filter, -ginkgo.focus and -ginkgo.skip.
var (
	subjectFlag   = flag.String("subject", "", "subject of the suite; without it and -kubeconfig the suite does not run")
	_             = flag.String("kubeconfig", "", "live cluster of the suite; with -context by default that of KUBECONFIG, or of ~/.kube/config")
	_             = flag.String("context", "", "context of the kubeconfig, by default its current one")
	namespaceFlag = flag.String("namespace", "", "refused: each run makes a namespace of its own, and deletes it")
	seedFlag      = flag.Int64("seed", 1, "seed of all runs")
	shardFlag     = flag.String("shard", "", "part I/N of the suite")
	outFlag       = flag.String("out", "", "folder for the results")
	museumFlag    = flag.String("museum", "", "museum.json of the same subject, for the report")
	pretendFlag   = flag.String("pretend", "", "tests only: no lab; runs are made up, and those with these names fail: a, list")
)

// TestConformance is the suite as a Go test: go test ./suites/conformance -args -subject=SUBJECT.
func TestConformance(t *testing.T) {
	live, err := liveOfFlags()
	if err != nil {
		t.Fatal(err)
	}
	if *subjectFlag == "" && !live.Named() {
		t.Skip("runs only by hand, with -args -subject=SUBJECT, -kubeconfig=FILE or -context=CONTEXT: this is the suite itself")
	}
	config, err := configOfFlags(t, live)
	if err != nil {
		t.Fatal(err)
	}
	suite, err := Register(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	suites.SkipsByDesign = true
	suites.Partial = *shardFlag != "" // a filter that no spec of the whole matches is an error of Register
	ginkgo.RunSpecs(t, description)
	if r := suite.report; r != nil && !config.DryRun && r.ExitCode() == 2 { // only the first process of Ginkgo has a report
		t.Errorf("no spec ran, because all were skipped: %s", r.Summary())
	}
}

// liveOfFlags is the live cluster that the flags of e2e-framework name: its resolution of file and context. The variable KUBECONFIG alone
// names none, so that a test of all packages touches no cluster.
func liveOfFlags() (*site.LiveOptions, error) {
	if *namespaceFlag != "" {
		return nil, fmt.Errorf("-namespace=%s: each run makes a namespace of its own, and deletes it; leave the flag out", *namespaceFlag)
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "kubeconfig" || f.Name == "context" })
	switch {
	case !given:
		return &site.LiveOptions{}, nil
	case *subjectFlag != "":
		return nil, fmt.Errorf("-subject=%s on a live cluster, which has a proxy of its own: leave one of them out", *subjectFlag)
	}
	live := &site.LiveOptions{Kubeconfig: conf.ResolveKubeConfigFile(), Context: conf.ResolveClusterContext()}
	if !live.Named() {
		return nil, errors.New("-context without a kubeconfig: give -kubeconfig=FILE, or set KUBECONFIG")
	}
	return live, nil
}

func configOfFlags(t testing.TB, live *site.LiveOptions) (c Config, err error) {
	suite, _ := ginkgo.GinkgoConfiguration()
	c = Config{Selection: Selection{Labels: suite.LabelFilter, Focus: suite.FocusStrings, Skip: suite.SkipStrings}, Out: *outFlag,
		Options: run.Options{Seed: *seedFlag, Live: live, LabOptions: site.LabOptions{Subject: *subjectFlag}},
		Command: "go test ./suites/conformance -args -subject=" + *subjectFlag}
	if live.Named() {
		c.Command = "go test ./suites/conformance -args -kubeconfig=FILE"
		if live.Context != "" {
			c.Command += " -context=" + record.Word(live.Context)
		}
	}
	c.Progress = progress.Lines(func(line string) { fmt.Fprintln(os.Stderr, line) })
	if c.Selection.Shard, err = shard.Parse(*shardFlag); err != nil {
		return c, err
	}
	if *museumFlag != "" {
		if c.Bugs, err = ReadBugs(t.Context(), *museumFlag, *subjectFlag); err != nil {
			return c, err
		}
	}
	if *pretendFlag != "" {
		c.Execute = pretend(t, strings.Split(*pretendFlag, ","))
		return c, nil
	}
	if !suite.DryRun {
		c.Options.Program, err = suites.Program()
		t.Cleanup(func() { _ = suites.RemoveProgram() }) // no node of Ginkgo has begun
	}
	return c, err
}

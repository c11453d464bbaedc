package main

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// Answers of specimens and of other subjects make one row. Flags and workarounds tell nothing about a subject.
func TestSubjectsOfABug(t *testing.T) {
	dir := t.TempDir()
	answer := func(subject string, seed int64, a museum.Answer) run.BugResult {
		return run.BugResult{Subject: subject, Seed: seed, Answer: a}
	}
	set := answer("kube-proxy@v1.37.1/nftables", 1, museum.NotSeen)
	set.Set = map[string]string{"key": "value"}
	for path, a := range map[string]results.Answers{
		bugs.File(dir, "k8s-134147"): {
			Bad:  []run.BugResult{answer("kube-proxy@v1.34.3/ipvs", 1, museum.NotSeen), answer("kube-proxy@v1.34.3/ipvs", 2, museum.Seen), answer("kube-proxy@v1.34.3/ipvs", 3, museum.NotSeen)},
			Good: []run.BugResult{answer("kube-proxy@v1.34.4/ipvs", 1, museum.NotSeen), set}},
		bugs.OthersFile(dir, "k8s-134147"): {
			Bad:  []run.BugResult{answer("kube-proxy@v1.19.0/ipvs", 1, museum.Seen)},
			Good: []run.BugResult{answer("kube-proxy@v1.37.1/ipvs?ipvs-min-sync-period=0s", 1, museum.NotSeen), answer("bundled", 1, museum.NotSeen), answer("kube-proxy@v1.37.1/ipvs", 1, museum.CannotTell)}},
	} {
		if err := a.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	versions, err := bugVersions(dir)
	if err != nil || !strings.Contains(versions, "| ipvs v1.19.0, v1.34.3 | bundled; ipvs v1.34.4 | ipvs v1.37.1 |") {
		t.Errorf("%v: %s", err, versions)
	}
	newest, err := currentBugs(dir)
	if err != nil || !strings.Contains(newest, "| bundled | 1 | none | none |\n| kube-proxy@v1.37.1/ipvs | 1 | none | k8s-134147 |") || strings.Contains(newest, "v1.34") || strings.Contains(newest, "nftables") {
		t.Errorf("%v: %s", err, newest)
	}
}

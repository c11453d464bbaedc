package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports/compare"
)

// Each minor version has a run in each of its modes. Versions before 1.26 must drop connections (KEP-1669), later ones none.
func TestEachMinorVersionHasItsRuns(t *testing.T) {
	files, err := committed(top, "minors/*.json")
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]compare.Run{}
	for _, file := range files {
		c, err := compare.Read(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Subjects {
			runs[s.Subject] = s.Runs[0]
			if minor := strings.TrimSuffix(filepath.Base(file), ".json"); !strings.HasPrefix(s.Subject, "kube-proxy@"+minor+".") {
				t.Errorf("%s has a run of %s", file, s.Subject)
			}
		}
	}
	for _, version := range minorsToRun(t) {
		var minor int
		if _, err := fmt.Sscanf(version, "1.%d.", &minor); err != nil {
			t.Fatal(err)
		}
		modes := []string{"iptables", "ipvs"}
		if minor >= 29 {
			modes = append(modes, "nftables")
		}
		for _, mode := range modes {
			r, run := runs["kube-proxy@v"+version+"/"+mode]
			lost := r.Verdict == analysis.Fail && r.Dropped > 0
			none := r.Verdict == analysis.Pass && r.Dropped == 0
			if !run || minor < 26 && !lost || minor >= 26 && !none {
				t.Errorf("v%s in mode %s: run %v, %s, %d dropped", version, mode, run, r.Verdict, r.Dropped)
			}
		}
	}
}

// minorsToRun returns the versions that `make minors` runs by default.
func minorsToRun(t *testing.T) []string {
	t.Helper()
	script, err := os.ReadFile("../../hack/minors.sh")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`for version in ([0-9. \\\n]+); do`).FindSubmatch(script)
	if list == nil {
		t.Fatal("the script has no list of its versions")
	}
	versions := strings.Fields(strings.ReplaceAll(string(list[1]), `\`, ""))
	for i, version := range versions {
		if !strings.HasPrefix(version, fmt.Sprintf("1.%d.", 11+i)) {
			t.Fatalf("version %s is in the place of minor version %d", version, 11+i)
		}
	}
	if last := versions[len(versions)-1]; !strings.HasPrefix(last, "1.37.") {
		t.Errorf("the last version is %s", last)
	}
	return versions
}

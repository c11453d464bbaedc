package results

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// olderResults are the committed files that do not tell all facts of what made them, of versions before these were recorded: below each folder
// the names of files, without .json. `make evidence` makes them anew, but those of `make nightly` (suites) and of `make upstream-rolling-update`.
var olderResults = map[string]string{
	"bench":      "proxier-10000",
	"dataplanes": "drain-scaledown flap policy restart rollout",
	"minors": "v1.11 v1.12 v1.13 v1.14 v1.15 v1.16 v1.17 v1.18 v1.19 v1.20 v1.21 v1.22 v1.23 v1.24 v1.25 v1.26 v1.27 v1.28 v1.29 v1.30 " +
		"v1.31 v1.32 v1.33 v1.34 v1.35 v1.36 v1.37",
	"suites":                  "museum subjects targets",
	"zero-loss":               "api-away busy relist upgrade",
	"upstream-rolling-update": "hitless",
}

// olderConformance are older reports of conformance.
var olderConformance = []string{"conformance/cilium-1.15.19/conformance.yaml", "conformance/cilium-1.20.2/conformance.yaml"}

// olderFiles are the paths of olderResults and olderConformance.
func olderFiles() []string {
	files := slices.Clone(olderConformance)
	for folder, names := range olderResults {
		for _, name := range strings.Fields(names) {
			files = append(files, path.Join(folder, name+".json"))
		}
	}
	return files
}

// Each committed file tells what made it, but the listed ones, and each of these still lacks something.
func TestTheCommittedResultsLackNothing(t *testing.T) {
	older, lacking := olderFiles(), map[string]bool{}
	for _, r := range check(t, "../../docs/results").Rows {
		facts := r.Lacks()
		if len(facts) > 0 && !slices.Contains(older, r.File) {
			t.Errorf("%s, %s does not tell %q", r.File, r.Name, facts)
		}
		lacking[r.File] = lacking[r.File] || len(facts) > 0
	}
	for _, file := range older {
		if !lacking[file] {
			t.Errorf("%s lacks nothing any more, or is gone: remove it from olderResults", file)
		}
	}
}

// Every committed file is read, and every one of its rows has a subject or a name.
func TestTheCommittedResultsAreRead(t *testing.T) {
	c := check(t, "../../docs/results")
	if len(c.Unread) > 0 || len(c.Rows) < 1000 {
		t.Errorf("%d rows; not read: %+v", len(c.Rows), c.Unread)
	}
	names := map[string]bool{}
	repeatable := 0
	for _, r := range c.Rows {
		if r.Name == "" || r.Verdict == "" || names[r.File+r.Name] {
			t.Errorf("%s: the row %q has no name of its own or no verdict", r.File, r.Name)
		}
		names[r.File+r.Name] = true
		if r.Again != nil {
			repeatable++
		}
	}
	if repeatable < len(c.Rows)/2 {
		t.Errorf("%d of %d rows can be repeated", repeatable, len(c.Rows))
	}
}

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
	"bench":                   "proxier-10000",
	"dataplanes":              "drain-scaledown",
	"suites":                  "museum subjects targets",
	"zero-loss":               "busy",
	"upstream-rolling-update": "hitless",
}

// olderFiles are the paths of olderResults.
func olderFiles() (files []string) {
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

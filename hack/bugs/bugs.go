// Package bugs names what hack/museum and hack/killscore measure of the museum and hack/docs shows.
package bugs

import (
	"maps"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// Select returns the entries of a list of ids, such as k8s-134147,k8s-80403. An empty list is all of them.
func Select(ids string) (entries []museum.Entry, err error) {
	if ids == "" {
		return museum.All(), nil
	}
	for id := range strings.SplitSeq(ids, ",") {
		e, err := museum.Find(id)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Of reports whether an answer is of a specimen, by its subject and settings.
func Of(s museum.Specimen, b run.BugResult) bool {
	return b.Subject == s.Subject && maps.Equal(b.Set, s.Set)
}

// Current reports whether an answer is about the trigger of the entry as it is now. Older answers do not tell their trigger, and count.
func Current(e museum.Entry, b run.BugResult) bool {
	return b.TriggerSha256 == "" || b.TriggerSha256 == e.TriggerSha256()
}

// File is the file of a bug's answers below the top of the tree.
func File(top, id string) string { return filepath.Join(top, "docs/results/museum", id+".json") }

// OthersFile is the file of a bug's answers of other subjects than its specimens.
func OthersFile(top, id string) string {
	return filepath.Join(top, "docs/results/museum-subjects", id+".json")
}

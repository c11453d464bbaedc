package museum

import (
	"embed"
	"fmt"
	"strings"

	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
)

// timelines has the file timelines/ID.timeline of each entry whose trigger is a timeline.
//
//go:embed timelines
var timelines embed.FS

// withTimeline adds the steps and parameters of the timeline of an entry. The file is part of the program, so that an error is a panic.
func withTimeline(e Entry) Entry {
	name := "timelines/" + e.ID + ".timeline"
	text, err := timelines.ReadFile(name)
	if err != nil {
		panic(err)
	}
	t, err := timeline.Parse(name, text)
	if err != nil {
		panic(err)
	}
	e.Scenario, e.Timeline, e.Set = scenarios.ReplayName, t, map[string]string{}
	for _, s := range t.Set {
		e.Set[s.Key] = s.Value
	}
	return e
}

// recorded has the timeline that the run of the picture wrote, of each entry whose trigger is a scenario: recorded/ID.timeline. hack/museum
// writes them.
//
//go:embed recorded
var recorded embed.FS

// Text returns the timeline of an entry: its own one, or that of a run with the bug. An entry whose run is not recorded yet has none.
func (e Entry) Text() (string, error) {
	for _, file := range []struct {
		in   embed.FS
		name string
	}{{timelines, "timelines"}, {recorded, "recorded"}} {
		if text, err := file.in.ReadFile(file.name + "/" + e.ID + ".timeline"); err == nil {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("%s has no timeline: no run of its scenario %s is recorded; `PICTURES=1 make museum` records one", e.ID, e.Scenario)
}

// excerptLines are the most lines of an excerpt.
const excerptLines = 24

// Excerpt returns the begin of the timeline for readers, and how many lines more there are. It is empty if there is no timeline.
func (e Entry) Excerpt() string {
	text, _ := e.Text()
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) <= excerptLines || e.Timeline != nil {
		return text
	}
	return fmt.Sprintf("%s# %d lines more: hitless museum show %s --timeline\n", strings.Join(lines[:excerptLines], ""), len(lines)-excerptLines, e.ID)
}

// pictures has the lanes of a run with the bug, drawn as text, of each entry that hack/museum has run: pictures/ID.txt.
//
//go:embed pictures
var pictures embed.FS

// Picture returns the drawing of a run with the bug.
func (e Entry) Picture() (picture string, has bool) {
	text, err := pictures.ReadFile("pictures/" + e.ID + ".txt")
	return string(text), err == nil
}

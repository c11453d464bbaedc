package museum

import (
	"embed"
	"fmt"

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

// Text returns the timeline of an entry as it stands in its file. The error is that of an entry with another scenario.
func (e Entry) Text() (string, error) {
	text, err := timelines.ReadFile("timelines/" + e.ID + ".timeline")
	if err != nil {
		return "", fmt.Errorf("%s has no timeline: its trigger is the scenario %s", e.ID, e.Scenario)
	}
	return string(text), nil
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

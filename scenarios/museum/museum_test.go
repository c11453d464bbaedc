package museum

import (
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/scenarios/timeline"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		answers []Answer
		want    int
	}{
		{[]Answer{NotSeen}, 0}, {[]Answer{Seen}, 1}, {[]Answer{CannotTell}, 3}, {[]Answer{DoesNotApply}, 3}, {[]Answer{NotSeen, DoesNotApply}, 0}, {[]Answer{NotSeen, CannotTell}, 3}, {[]Answer{CannotTell, Seen, NotSeen}, 1},
	} {
		if got := ExitCode(c.answers...); got != c.want {
			t.Errorf("%v exit with %d, want %d", c.answers, got, c.want)
		}
	}
}

func TestEntries(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		if e.ID == "" || e.Title == "" || e.Affected == "" || e.Fixed == "" || e.Scenario == "" || e.Signature == nil || e.Look == "" || e.Bad.Subject == "" ||
			e.Good.Subject == "" || seen[e.ID] {
			t.Errorf("the entry %q is incomplete or stands there twice", e.ID)
		}
		seen[e.ID] = true
		if found, err := Find(e.ID); err != nil || found.Title != e.Title {
			t.Errorf("%s is not found: %v", e.ID, err)
		}
	}
	if _, err := Find("k8s-8564"); err == nil || !strings.Contains(err.Error(), "did you mean k8s-85643?") {
		t.Errorf("an unknown bug gave %v", err)
	}
}

// A newcomer learns a bug from ten lines, its steps and a picture.
func TestEachEntryIsExplained(t *testing.T) {
	for _, e := range All() {
		if n := len(e.Facts()); n == 0 || n > 10 {
			t.Errorf("%s has %d facts", e.ID, n)
		}
		if picture, has := e.Picture(); !has || !strings.Contains(picture, "dropped") && !strings.Contains(picture, "connections failed") {
			t.Errorf("%s has no picture: %q", e.ID, picture)
		}
		text, err := e.Text()
		if err != nil {
			t.Error(err)
			continue
		}
		if parsed, err := timeline.Parse(e.ID, []byte(text)); err != nil || len(parsed.Steps) < 2 {
			t.Errorf("%s: %v", e.ID, err)
		}
		if lines := strings.Count(e.Excerpt(), "\n"); e.Timeline == nil && lines > excerptLines+1 || lines < 3 {
			t.Errorf("the excerpt of %s has %d lines", e.ID, lines)
		}
	}
}

// Another scenario, parameter, step or rate is another trigger.
func TestTriggers(t *testing.T) {
	e := withTimeline(Entry{ID: "k8s-134147"})
	late := *e.Timeline
	late.Steps = slices.Clone(late.Steps)
	late.Steps[0].At++
	seen := map[string]string{}
	for name, other := range map[string]Entry{
		"as it is": e, "a scenario": {Scenario: "flap", Set: e.Set}, "a rate": {Scenario: e.Scenario, Set: e.Set, Timeline: e.Timeline, Rate: 100},
		"a parameter": {Scenario: e.Scenario, Set: map[string]string{"replicas": "9"}, Timeline: e.Timeline}, "a step": {Scenario: e.Scenario, Set: e.Set, Timeline: &late},
	} {
		sum := other.TriggerSha256()
		if same, known := seen[sum]; known {
			t.Errorf("%s and %s are one trigger", name, same)
		}
		seen[sum] = name
	}
	if again := withTimeline(Entry{ID: "k8s-134147", Title: "another title"}); again.TriggerSha256() != e.TriggerSha256() {
		t.Error("another title is another trigger")
	}
}

package museum

import (
	"strings"
	"testing"
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

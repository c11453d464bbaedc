package scenarios

import (
	"os"
	"strings"
	"testing"
)

// The page has a section for each scenario, and no other sections of scenarios.
func TestPageHasEveryScenario(t *testing.T) {
	text, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(line, "## "); is {
			described[strings.TrimSpace(name)] = true
		}
	}
	for _, s := range All() {
		if !described[s.Name] {
			t.Errorf("docs/scenarios.md does not describe %s", s.Name)
		}
	}
	for _, s := range All() {
		delete(described, s.Name)
	}
	for name := range described {
		t.Errorf("docs/scenarios.md describes %s, which is not a scenario", name)
	}
}

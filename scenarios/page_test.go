package scenarios

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page's table of common keys has their defaults.
func TestPageHasDefaultsOfCommonKeys(t *testing.T) {
	text, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| key | default | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	defaults, shown := map[string]string{}, 0
	for _, p := range Common() {
		defaults[p.Key] = p.Default
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		if shown++; defaults[row[1]] != row[2] {
			t.Errorf("docs/scenarios.md has the default %s=%s, want %q", row[1], row[2], defaults[row[1]])
		}
	}
	if shown < 9 {
		t.Errorf("docs/scenarios.md has the defaults of %d common keys, want 9 or more", shown)
	}
}

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

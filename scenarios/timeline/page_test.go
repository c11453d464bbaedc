package timeline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/scenarios/timeline"
)

// The page explains each verb, and Parse accepts its example.
func TestPageHasEveryVerb(t *testing.T) {
	text, err := os.ReadFile("../../docs/timeline.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, verb := range timeline.Verbs() {
		verb = strings.Replace(verb, "lane start", "lane", 1)
		if !strings.HasPrefix(verb, "await ") && !strings.Contains(page, "`"+verb) {
			t.Errorf("docs/timeline.md does not explain %q", verb)
		}
	}
	var example strings.Builder
	for line := range strings.Lines(page) {
		if line, is := strings.CutPrefix(line, "    "); is && (example.Len() > 0 || strings.HasPrefix(line, "hitless timeline")) {
			example.WriteString(line)
		} else if example.Len() > 0 {
			break
		}
	}
	if got, err := timeline.Parse("page", []byte(example.String())); err != nil || len(got.Steps) != 6 {
		t.Errorf("the page's example: %v\n%s", err, example.String())
	}
}

// Parse accepts the examples of the documentation.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.timeline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = timeline.Parse(file, text)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

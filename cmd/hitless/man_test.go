package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var manDir = flag.String("man", "", "`DIRECTORY` for the manual pages; `make release` gives one")

// Each command that the help lists has a manual page, without the time at which it was made.
func TestManualPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	first := root()
	first.DisableAutoGenTag = true
	if err := doc.GenManTree(first, &doc.GenManHeader{Title: "HITLESS", Section: "1", Source: "hitless", Manual: "hitless", Date: new(time.Time)}, dir); err != nil {
		t.Fatal(err)
	}
	pages := 0
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), ".TH") {
			t.Errorf("%s: %v", name, err)
		}
		pages++
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() && !child.IsAdditionalHelpTopicCommand() {
				check(child)
			}
		}
	}
	check(first)
	if found, _ := filepath.Glob(filepath.Join(dir, "*.1")); len(found) != pages {
		t.Errorf("%d pages for %d commands: hidden ones have none", len(found), pages)
	}
}

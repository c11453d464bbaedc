//go:build !lab

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The program that `make build` makes has no tags, and so none of the guest programs for tests.
func TestShippedProgramHasNoTestScaffolding(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", `{{if not .Standard}}{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}}
{{end}}{{range .Imports}}{{$p}} imports {{.}}
{{end}}{{end}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "github.com/hitless/hitless/internal/guest/execute.go\n") {
		t.Fatalf("go list does not list the files of package guest:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		ours := strings.HasPrefix(line, "github.com/hitless/hitless/")
		if ours && (strings.HasSuffix(line, "/toy.go") || strings.HasSuffix(line, "/tests.go") || strings.HasSuffix(line, " imports testing")) {
			t.Error(line)
		}
	}
	for _, name := range []string{"toy", "tests"} {
		var text strings.Builder
		if code := execute([]string{"run", name, "--out", t.TempDir()}, &text, &text); code != exitUsage || !strings.Contains(text.String(), name) {
			t.Errorf("hitless run %s: exit %d: %s", name, code, text.String())
		}
	}
}

package scenarios

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The example of docs/adding-a-scenario.md compiles in package scenarios.
func TestGuideScenarioCompiles(t *testing.T) {
	page, err := os.ReadFile("../docs/adding-a-scenario.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, begins := strings.Cut(string(page), "```go\n")
	code, _, ends := strings.Cut(code, "```")
	if !begins || !ends {
		t.Fatal("the guide has no example")
	}
	dir := t.TempDir()
	example, overlay := filepath.Join(dir, "unready.go"), filepath.Join(dir, "overlay.json")
	target, err := filepath.Abs("unready.go")
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{target: example}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{example: []byte(code), overlay: replace} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-overlay", overlay, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

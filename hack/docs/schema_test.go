package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kind of event that is missing in the schema comes back, and a file without the list is an error.
func TestSchemaGetsTheKindsOfTheCode(t *testing.T) {
	current, err := os.ReadFile(filepath.Join(top, schemaFile))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, filepath.Dir(schemaFile)), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, schemaFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old := strings.Replace(string(current), "              \"rollout\",\n", "", 1)
	if old == string(current) {
		t.Fatal("the schema has no kind rollout")
	}
	write(old)
	if p, err := schemaWithKinds(dir); err != nil || string(p.text) != string(current) {
		t.Errorf("an old schema became (%v)\n%s", err, p.text)
	}
	write("{}")
	if _, err := schemaWithKinds(dir); err == nil {
		t.Error("a schema without kinds is no error")
	}
}

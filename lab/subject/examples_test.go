package subject

import (
	"os"
	"path/filepath"
	"testing"
)

// The description of a proxy that hitless cannot build is at least one that it can read.
func TestKubeRouterExample(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("../../docs/examples/kube-router.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kube-router.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExec(t.Context(), file); err == nil {
		t.Error("it was read without its program")
	}
	if err := os.WriteFile(filepath.Join(dir, "kube-router"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExec(t.Context(), file); err != nil {
		t.Error(err)
	}
}

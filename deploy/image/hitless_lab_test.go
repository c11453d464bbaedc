//go:build lab

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The sources of hitless in two directories and at two dates give one image, and its SBOM lists all modules.
func TestHitlessIsOneImage(t *testing.T) {
	sources, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	here := build(t, sources, filepath.Join(t.TempDir(), "here"), once, "./cmd/hitless", static...)
	there := build(t, sources, filepath.Join(t.TempDir(), "far", "away"), then, "./cmd/hitless", static...)
	a, b := makeImage(t, here, "hitless:latest"), makeImage(t, there, "hitless:latest")
	if d := differ(t, a, b); d != "" {
		t.Errorf("%s differs between two directories and two dates", d)
	}
	p, err := readProgram(here)
	if err != nil {
		t.Fatal(err)
	}
	checkSBOM(t, a, p.info)
	made, err := os.ReadFile("../../bin/hitless")
	if err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	if string(made) != string(p.bytes) {
		t.Error("bin/hitless is another program; `make build` rebuilds it, if it is of other sources")
	}
}

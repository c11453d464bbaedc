//go:build lab

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What holds for a small program holds for hitless: its sources in two folders, at two dates, are one image. Its bill names
// all of its modules, and the program in it says by itself what it is.
func TestHitlessIsOneImage(t *testing.T) {
	sources, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	here := build(t, sources, filepath.Join(t.TempDir(), "here"), once, "./cmd/hitless", static...)
	there := build(t, sources, filepath.Join(t.TempDir(), "far", "away"), then, "./cmd/hitless", static...)
	a, b := makeImage(t, here, "hitless:latest"), makeImage(t, there, "hitless:latest")
	if d := differ(t, a, b); d != "" {
		t.Errorf("%s differs between two folders and two dates", d)
	}
	p, err := readProgram(here)
	if err != nil {
		t.Fatal(err)
	}
	checkBill(t, a, p.info)
	// What `make build` leaves is the same program, where it is of these sources.
	if data, err := os.ReadFile("../../bin/hitless"); err == nil && string(data) != string(p.bytes) {
		t.Log("bin/hitless is of other sources; `make build` builds it anew")
	}
}

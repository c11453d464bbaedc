package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

// A program that was built again has another digest, also within one process.
func TestTheProgramOfARunIsItsFile(t *testing.T) {
	c := Call{Program: filepath.Join(t.TempDir(), "hitless")}
	if _, err := c.programSha256(t.Context()); err == nil {
		t.Error("a missing program has a digest")
	}
	for _, content := range [][]byte{[]byte("one"), bytes.Repeat([]byte("other"), 1000)} {
		if err := os.WriteFile(c.Program, content, 0o755); err != nil {
			t.Fatal(err)
		}
		want := sha256.Sum256(content)
		for range 2 {
			if got, err := c.programSha256(t.Context()); err != nil || got != hex.EncodeToString(want[:]) {
				t.Errorf("%s, %v, want %x", got, err, want)
			}
		}
	}
}

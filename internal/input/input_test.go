//go:build unix

package input

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A file of the bound is read. One that is longer, or no regular file, is an error that names it; reading a named pipe does not wait.
func TestRead(t *testing.T) {
	if data, err := Read(t.Context(), write(t, "12345"), 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{write(t, "123456"): "more than 0 kB", pipe: "named pipe", t.TempDir(): "folder", "/dev/zero": "device", "": "empty",
		filepath.Join(t.TempDir(), "none"): "no such file"} {
		if _, err := Read(t.Context(), file, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ended, write(t, "12345"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// A file that the kernel says is empty and that goes on for ever, as those in /proc can, ends at the bound.
func TestReadEndsAtTheBound(t *testing.T) {
	if _, err := Read(t.Context(), "/proc/self/maps", 100); err == nil || !strings.Contains(err.Error(), "bound") {
		t.Errorf("%v", err)
	}
}

// A text is one document, and no mapping in it has a key twice.
func TestDocument(t *testing.T) {
	for text, want := range map[string]string{"": "f:1: the file is empty", "# no\n": "f:1: the file is empty", "a: 1\n---\nb: 2\n": "f:2: a second document",
		"a:\n  b: 1\n  b: 2\n": "f:3: b is given twice, first in line 2", "- a: 1\n  a: 1\n": "f:2: a is given twice", "a: [": "not YAML", "a: 1\n---\n- [": "not YAML"} {
		if _, err := Document("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	root, err := Document("f", []byte("a: 3\nb: {a: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var a int
	known := map[string]func(*yaml.Node) error{"a": Count(&a), "b": func(*yaml.Node) error { return nil }}
	if err := Fields("f", root, known); err != nil || a != 3 {
		t.Errorf("%d, %v", a, err)
	}
	delete(known, "b")
	if err := Fields("f", root, known); err == nil || !strings.Contains(err.Error(), `f:2: unknown key "b"; the keys are a`) {
		t.Errorf("an unknown key: %v", err)
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error is found on the platforms that have it, in programs and in tests, and nowhere else.
func TestErrorsOfOnePlatformAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.com/x\n\ngo 1.26\n",
		"all.go":            "package x\n\nimport \"os\"\n\n// Name is a name.\nfunc Name() string { return os.Args[0] + suffix }\n",
		"suffix_linux.go":   "package x\n\nconst suffix = \"\"\n",
		"suffix_darwin.go":  "package x\n\nconst suffix = 1\n",
		"x_windows.go":      "package x\n\nconst suffix = \".exe\"\n",
		"x_windows_test.go": "package x\n\nimport \"testing\"\n\nfunc TestName(t *testing.T) { t.Log(missing) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{"linux/arm64": "", "darwin/arm64": "suffix", "windows/amd64": "missing", "windows/amd64=.": "missing"} {
		var out bytes.Buffer
		n, err := check(dir, platform, &out)
		if err != nil || (n > 0) != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d errors, %v:\n%s", platform, n, err, out.String())
		}
	}
	if _, err := check(dir, "linux", &bytes.Buffer{}); err == nil {
		t.Error("a platform without a processor was accepted")
	}
}

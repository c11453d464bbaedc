package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The errors distinguish a kubeconfig of another cluster from that of an ended lab.
func TestLabShellNeedsALabThatRuns(t *testing.T) {
	dir := t.TempDir()
	stranger, gone := filepath.Join(dir, "stranger"), filepath.Join(dir, "gone")
	const head = "apiVersion: v1\nkind: Config\n"
	for file, text := range map[string]string{stranger: head,
		gone: head + "extensions:\n- name: hitless-lab\n  extension: {pid: 1, net: 999999, user: -1}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{filepath.Join(dir, "none"): "hitless lab up", stranger: "is not the kubeconfig of a lab", gone: "is gone"} {
		var out bytes.Buffer
		if code := execute([]string{"lab", "shell", "--kubeconfig", file, "--", "true"}, &out, &out); code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, want 2 and %q:\n%s", filepath.Base(file), code, want, out.String())
		}
	}
}

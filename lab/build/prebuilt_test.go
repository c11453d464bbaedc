package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readyDir holds shell scripts that say a version.
func readyDir(t *testing.T, says map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range says {
		script := "#!/bin/sh\necho '" + text + "'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPrebuilt(t *testing.T) {
	dir := readyDir(t, map[string]string{
		"kube-proxy": "Kubernetes v1.37.1", "kube-proxy@v1.12.2": "Kubernetes v1.12.2-patched", "etcd": "etcd Version: 3.7.0",
		"kube-apiserver@v1.37.1": "Kubernetes v1.36.0",
	})
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	b.Prebuilt = dir
	list := mustBuild(t, b, proxy, oldProxy, etcd, apiserver)
	for i, name := range []string{"kube-proxy", "kube-proxy@v1.12.2", "etcd", "kube-apiserver@v1.37.1"} {
		if list[i].Path != filepath.Join(dir, name) || len(list[i].Sha256) != 64 || len(list[i].Notes) == 0 {
			t.Errorf("%s is %+v", name, list[i])
		}
	}
	if notes := strings.Join(list[3].Notes, "\n"); !strings.Contains(notes, "that is not v1.37.1") {
		t.Errorf("the notes do not tell that the name is wrong: %s", notes)
	}
	if len(f.downloads) != 0 {
		t.Errorf("downloads: %v", f.downloads)
	}
	if bin, ok := b.Cached(etcd); !ok || bin.Path != list[2].Path {
		t.Errorf("Cached = %v, %v", bin, ok)
	}
}

func TestPrebuiltOfAnotherVersionIsNotTaken(t *testing.T) {
	f := newFakeGo(t)
	b, lines := newBuilder(t, f)
	b.Prebuilt = readyDir(t, map[string]string{"kube-proxy": "Kubernetes v1.37.10"})
	bin := mustBuild(t, b, proxy)[0]
	if strings.HasPrefix(bin.Path, b.Prebuilt) || len(f.jobs) != 1 {
		t.Errorf("taken is %s after %d compilations", bin.Path, len(f.jobs))
	}
	if !strings.Contains((*lines)[0], "not taken") {
		t.Errorf("nothing is said about it: %q", *lines)
	}
}

func TestPrebuiltErrors(t *testing.T) {
	b, _ := newBuilder(t, newFakeGo(t))
	b.Prebuilt = filepath.Join(t.TempDir(), "none")
	if _, err := b.Build(t.Context(), proxy); err == nil || !strings.Contains(err.Error(), "directory of prebuilt binaries") {
		t.Errorf("a directory that is not there: %v", err)
	}
	b.Prebuilt = t.TempDir()
	if err := os.WriteFile(filepath.Join(b.Prebuilt, "kube-proxy"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(t.Context(), proxy); err == nil || !strings.Contains(err.Error(), "not an executable file") {
		t.Errorf("a file that cannot be run: %v", err)
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]bool{
		"Kubernetes v1.37.1": true, "etcd Version: 1.37.1": true, "v1.37.1+dirty": true, "v1.37.10": false, "v11.37.1": false, "1.37": false, "": false,
	} {
		if got := containsVersion(text, "v1.37.1"); got != want {
			t.Errorf("names(%q) = %v", text, got)
		}
	}
}

package debian

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// The mirrors of this machine serve the other releases of Debian. Without one the kernel cannot be had.
func TestMirrorsOfOtherReleases(t *testing.T) {
	const targets = "Docker Docker https://docker.example/\nDebian Debian http://mirror.example/debian/\n" +
		"Debian Debian http://second.example/debian/\nDebian Debian-Security http://security.example/\n"
	m, err := mirrorsIn(targets)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"bullseye", "bullseye-security"}, {"bookworm", "bookworm-security"}, {"trixie", "trixie-security"}, {"sid"}} {
		lines := strings.Split(strings.TrimSuffix(Suites[i].sources(m, true), "\n"), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%q", lines)
		}
		for j, mirror := range []string{"http://mirror.example/debian/ ", "http://security.example/ "}[:len(want)] {
			if !strings.Contains(lines[j], mirror+want[j]+" main") || !strings.Contains(lines[j], "signed-by="+keyring) {
				t.Errorf("line %d is %s", j, lines[j])
			}
		}
		if alone := Suites[i].sources(m, false); alone != lines[0]+"\n" {
			t.Errorf("without security updates: %q", alone)
		}
	}
	if m, err := mirrorsIn("Ubuntu Ubuntu http://mirror.example/ubuntu/\n"); err == nil || !strings.Contains(err.Error(), MirrorVariable) {
		t.Errorf("a mirror of Ubuntu gives %q, %v", m, err)
	}
}

// Without apt a mirror must be named, and a named one is used on every machine.
func TestMirrorWithoutApt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(MirrorVariable, "")
	var m Mirror
	if address, err := m.Find(t.Context()); err == nil || !strings.Contains(err.Error(), MirrorVariable) || !strings.Contains(err.Error(), "no apt") {
		t.Errorf("%q, %v", address, err)
	}
	for text, good := range map[string]bool{"http://mirror.example/debian": true, "file:///srv/debian": true, "ftp://mirror.example/": false, "mirror.example": false, "http://a b/": false} {
		t.Setenv(MirrorVariable, text)
		m := Mirror{}
		if address, err := m.Find(t.Context()); (err == nil) != good || good && address != text {
			t.Errorf("%q is %q, %v", text, address, err)
		}
	}
	t.Setenv(MirrorVariable, "http://user:secret@mirror.example/")
	if address, err := new(Mirror).Find(t.Context()); err != nil || strings.Contains(address, "secret") {
		t.Errorf("%q, %v", address, err)
	}
}

func fileOf(path, content string) File {
	sum := sha256.Sum256([]byte(content))
	return File{path, hex.EncodeToString(sum[:])}
}

// A file arrives whole and with its digest, or not at all; the error says what to do.
func TestFetch(t *testing.T) {
	const content = "a package"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debian/pool/whole.deb":
			_, _ = w.Write([]byte(content))
		case "/debian/pool/short.deb":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(content))
		case "/debian/pool/large.deb":
			_, _ = w.Write(make([]byte, 10_000))
		case "/debian/pool/broken.deb":
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "pool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "pool/whole.deb"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	offline := httptest.NewServer(http.NotFoundHandler())
	offline.Close()
	for name, c := range map[string]struct {
		mirror, path, content string
		say                   []string // nil if it succeeds
		gone                  bool
	}{
		"whole":          {server.URL + "/debian", "pool/whole.deb", content, nil, false},
		"of a folder":    {"file://" + folder, "pool/whole.deb", content, nil, false},
		"not in it":      {"file://" + folder, "pool/other.deb", content, []string{"other.deb"}, true},
		"another digest": {server.URL + "/debian", "pool/whole.deb", "another package", []string{"SHA-256 " + fileOf("", content).Sha256, fileOf("", "another package").Sha256, "nothing of it is kept"}, false},
		"truncated":      {server.URL + "/debian", "pool/short.deb", content, []string{"short.deb", "network", MirrorVariable}, false},
		"too large":      {server.URL + "/debian", "pool/large.deb", content, []string{"large.deb", "more than 4096 bytes", MirrorVariable}, false},
		"gone":           {server.URL + "/debian", "pool/gone.deb", content, []string{"gone.deb"}, true},
		"unavailable":    {server.URL + "/debian", "pool/broken.deb", content, []string{"503", MirrorVariable}, false},
		"no network":     {offline.URL, "pool/whole.deb", content, []string{"whole.deb", "network", "HTTP_PROXY", MirrorVariable}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(MirrorVariable, c.mirror)
			m := Mirror{most: 4096}
			if _, err := m.Find(t.Context()); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			err := m.Fetch(t.Context(), fileOf(c.path, c.content), dir, "package")
			text, readErr := os.ReadFile(filepath.Join(dir, "package"))
			if good := c.say == nil; (err == nil) != good || good && string(text) != c.content || !good && !errors.Is(readErr, fs.ErrNotExist) {
				t.Fatalf("%v; the file has %q, %v", err, text, readErr)
			}
			if errors.Is(err, ErrGone) != c.gone {
				t.Errorf("it is gone: %v", err)
			}
			for _, part := range c.say {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// Each damage of a package is an error, or has the same files.
func TestDamagedPackages(t *testing.T) {
	files := map[string]string{"usr/bin/tool": strings.Repeat("a tool", 100), "usr/lib/libtool.so": "->libtool.so.1", "usr/lib/libtool.so.1": "a library"}
	for suffix := range testfiles.Compressions {
		whole := []byte(testfiles.Deb(t, suffix, files))
		file := filepath.Join(t.TempDir(), "tool.deb")
		unpack := func(content []byte) (string, error) {
			if err := os.WriteFile(file, content, 0o644); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "root")
			err := Unpack(t.Context(), file, dir)
			tool, _ := os.ReadFile(filepath.Join(dir, "usr/bin/tool"))
			library, _ := os.ReadFile(filepath.Join(dir, "usr/lib/libtool.so"))
			return string(tool) + string(library), err
		}
		good, err := unpack(whole)
		if err != nil || good != files["usr/bin/tool"]+"a library" {
			t.Fatalf("%s: %q, %v", suffix, good, err)
		}
		refused := 0
		for i := 0; i < len(whole); i += 11 {
			bad := append([]byte{}, whole...)
			bad[i] ^= 0x41
			if got, err := unpack(bad); err != nil {
				refused++
			} else if got != good {
				t.Errorf("%s: with another byte %d the files are others", suffix, i)
			}
		}
		if refused == 0 {
			t.Errorf("%s: no changed byte is refused", suffix)
		}
		for _, n := range []int{0, 4, 50, 70, len(whole) / 2, len(whole) - 30} {
			if _, err := unpack(whole[:n]); err == nil || !strings.Contains(err.Error(), "tool.deb") {
				t.Errorf("%s: %d bytes of %d: %v", suffix, n, len(whole), err)
			}
		}
	}
}

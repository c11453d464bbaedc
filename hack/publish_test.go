//go:build linux

package hack_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// publish runs hack/publish.sh on the files of a release, and returns the exit code and the call of gh.
func publish(t *testing.T, tag string, files map[string]string) (code int, call string) {
	t.Helper()
	s := scripttest.New(t, "folder.sh publish.sh", map[string]string{"gh": "echo \"$*\" >call\n"})
	for name, text := range files {
		s.Write("out/"+name, text)
	}
	code, _ = s.Run([]string{"TAG=" + tag, "OUT=" + s.Dir + "/out"}, "publish.sh")
	return code, s.Read("call")
}

// Only the complete and undamaged release of the tag is published.
func TestPublish(t *testing.T) {
	const archive, text = "hitless_v1.2.3_linux_amd64.tar.gz", "an archive"
	sums := func(name, text string) string { return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name) }
	for name, c := range map[string]struct {
		tag   string
		files map[string]string
		code  int
		call  string
	}{
		"the release": {"v1.2.3", map[string]string{archive: text, "SHA256SUMS": sums(archive, text)}, 0,
			"release create v1.2.3 --verify-tag --title v1.2.3 --generate-notes DIR/out/SHA256SUMS DIR/out/" + archive + "\n"},
		"with a hidden marker": {"v1.2.3", map[string]string{archive: text, ".hitless-made": "", "SHA256SUMS": sums(archive, text)}, 0,
			"release create v1.2.3 --verify-tag --title v1.2.3 --generate-notes DIR/out/SHA256SUMS DIR/out/" + archive + "\n"},
		"another tag":            {"v1.2.4", map[string]string{archive: text, "SHA256SUMS": sums(archive, text)}, 2, ""},
		"a damaged archive":      {"v1.2.3", map[string]string{archive: "damaged", "SHA256SUMS": sums(archive, text)}, 1, ""},
		"a file without its sum": {"v1.2.3", map[string]string{archive: text, "more": "", "SHA256SUMS": sums(archive, text)}, 2, ""},
		"a sum without its file": {"v1.2.3", map[string]string{archive: text, "SHA256SUMS": sums(archive, text) + sums("more", "")}, 2, ""},
	} {
		if code, call := publish(t, c.tag, c.files); code != c.code || call != c.call {
			t.Errorf("%s: exit code %d after %q, want %d after %q", name, code, call, c.code, c.call)
		}
	}
	rc := strings.ReplaceAll(archive, "v1.2.3", "v1.2.3-rc.1")
	if code, call := publish(t, "v1.2.3-rc.1", map[string]string{rc: text, "SHA256SUMS": sums(rc, text)}); code != 0 || !strings.Contains(call, "--prerelease") {
		t.Errorf("a release candidate: exit code %d after %q", code, call)
	}
}

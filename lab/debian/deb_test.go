package debian

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// No package writes outside of the directory, by names or through links.
func TestPackagesStayInTheirDirectory(t *testing.T) {
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	for name, headers := range map[string][]tar.Header{
		"a parent":              {file("../outside")},
		"a deep parent":         {file("./usr/../../outside")},
		"a root":                {file("/outside")},
		"a link to a parent":    {link("./up", ".."), file("./up/outside")},
		"a link to the root":    {link("./up", "/"), file("./up/outside")},
		"a hard link":           {{Name: "./inside", Typeflag: tar.TypeLink, Linkname: "../other"}},
		"a device":              {{Name: "./device", Typeflag: tar.TypeChar}},
		"a link, then its file": {link("./outside", "../outside"), file("./outside")},
	} {
		parent := t.TempDir()
		if err := os.WriteFile(filepath.Join(parent, "other"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		deb := filepath.Join(t.TempDir(), "bad.deb")
		if err := os.WriteFile(deb, []byte(testfiles.DebOf(t, ".gz", headers, func(string) string { return "bad" })), 0o644); err != nil {
			t.Fatal(err)
		}
		err := Unpack(t.Context(), deb, filepath.Join(parent, "root"))
		if err == nil || !strings.Contains(err.Error(), "bad.deb") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(parent, "outside")); err == nil {
			t.Errorf("%s: a file is outside", name)
		}
	}
}

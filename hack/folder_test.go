//go:build linux

package hack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// A folder that the user names is removed only if it is empty or of the script.
func TestFoldersOfTheUserStay(t *testing.T) {
	for script, c := range map[string]struct{ variable, usual string }{"release.sh": {"OUT", "out/release"}, "other-host.sh": {"OTHER", "out/other-host/debian-13"}} {
		// The scripts end at the first program that fills the folder.
		s := scripttest.New(t, "folder.sh "+script+" platforms.txt", map[string]string{"git": "echo abc\n", "go": "exit 3\n", "debootstrap": "exit 3\n", "id": "echo 0\n", "apt-get": ""})
		named := func(folder string) (int, string) { return s.Run([]string{c.variable + "=" + folder}, script) }
		s.Write("own/thesis.txt", "years")
		s.Write("file", "years")
		for _, folder := range []string{"own", "file", "hack"} {
			path := filepath.Join(s.Dir, folder)
			if code, out := named(path); code != 2 || !strings.Contains(out, path+" is not a folder of this script: give another, or remove it") {
				t.Errorf("%s in %s: exit code %d\n%s", script, folder, code, out)
			}
		}
		if s.Read("own/thesis.txt") != "years" || s.Read("file") != "years" || !s.Has("hack/"+script) {
			t.Errorf("%s removed a folder of the user", script)
		}
		if err := os.Mkdir(filepath.Join(s.Dir, "empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{"empty", "new", "deep/new", ""} {
			at := folder
			if at == "" {
				at = c.usual
				s.Write(at+"/older", "")
			}
			for range 2 { // the second time it is a folder of the script
				if code, out := named(folder); code != 3 || s.Has(at+"/older") {
					t.Errorf("%s in %q: exit code %d\n%s", script, folder, code, out)
				}
				s.Write(at+"/older", "")
			}
		}
	}
}

// A check of releases needs the sources of the commit, and leaves the user's release alone.
func TestReleaseChecksAreOfTheCommit(t *testing.T) {
	git := func(status string) string {
		return "case $1 in status) printf '" + status + "' ;; archive) tar c --files-from=/dev/null ;; *) echo abc ;; esac\n"
	}
	for name, c := range map[string]struct {
		git  string
		code int
		want string
	}{
		"clean": {git(""), 3, "released"},
		"dirty": {git(" M lab/lab.go\\n"), 2, "M lab/lab.go"},
		"no":    {"exit 128\n", 128, ""},
	} {
		s := scripttest.New(t, "release-check.sh", map[string]string{"git": c.git})
		s.Program("hack/release.sh", "echo released into \"$OUT\" >&2\nexit 3\n")
		code, out := s.Run(nil, "release-check.sh")
		if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, "released") != (name == "clean") || strings.Contains(out, "out/release") {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
	}
}

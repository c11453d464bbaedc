//go:build linux

package hack_test

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// A search for files that finds none checks nothing, and is an error.
func TestSearchesForFilesMustFind(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		args   []string
		found  map[string]string // by the command of git
		ok     bool
	}{
		"lint":                  {"lint.sh", nil, map[string]string{"ls-files": "a/b.go", "grep": "a/b.go"}, true},
		"lint without files":    {"lint.sh", nil, map[string]string{"grep": "a/b.go"}, false},
		"lint without left out": {"lint.sh", nil, map[string]string{"ls-files": "a/b.go"}, false},
		"fuzz":                  {"unit.sh", []string{"explore"}, map[string]string{"grep": "a/b_test.go:func FuzzB"}, true},
		"fuzz without a test":   {"unit.sh", []string{"explore"}, nil, false},
	} {
		git := "case $1 in\n"
		for command, found := range c.found {
			git += command + ") echo '" + found + "' ;;\n"
		}
		s := scripttest.New(t, c.script, map[string]string{"git": git + "grep) exit 1 ;;\nesac\n", "go": "echo go \"$@\" >>calls\n", "gofmt": "", "shellcheck": ""})
		s.Program("hack/gotest.sh", "echo gotest \"$@\" >>calls\n")
		for _, dir := range []string{"deploy/image", "deploy/foreign"} {
			s.Write(dir+"/go.mod", "")
		}
		code, out := s.Run(nil, c.script, c.args...)
		if (code == 0) != c.ok || !c.ok && !strings.Contains(out, "finds no") {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
		last := map[string]string{"lint.sh": "go vet -tags  ./a\n", "unit.sh": "-fuzz ^FuzzB$"}[c.script]
		if c.ok && !strings.Contains(s.Read("calls"), last) {
			t.Errorf("%s: no %q in the calls\n%s", name, last, s.Read("calls"))
		}
	}
}

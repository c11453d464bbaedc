//go:build linux

package hack_test

import (
	"strconv"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// The script of the museum passes what the call asks for, and its exit code, and writes the pages also after a wrong answer.
func TestTheMuseumGetsItsFlags(t *testing.T) {
	for name, c := range map[string]struct {
		variables []string
		code      string
		flags     string
	}{
		"nothing":   {nil, "0", "-subset  -seeds 4 -subjects \n"},
		"all":       {[]string{"SUBSET=a,b", "SEEDS=2", "SUBJECTS=kept", "STALE=1", "FORCE=1", "JUDGE=1", "PICTURES=1"}, "1", "-subset a,b -seeds 2 -subjects kept -stale -force -judge -pictures\n"},
		"interrupt": {nil, "130", "-subset  -seeds 4 -subjects \n"},
	} {
		s := scripttest.New(t, "museum.sh", map[string]string{
			"go": "echo \"$1\" >>calls\nif [ \"$1\" = build ]; then mkdir -p out/museum; cp program \"$3\"; fi\n"})
		s.Program("program", "echo \"$@\" >>flags\nexit "+c.code+"\n")
		code, out := s.Run(c.variables, "museum.sh")
		if got := s.Read("flags"); c.code != strconv.Itoa(code) || got != c.flags || s.Read("calls") != "build\nrun\n" {
			t.Errorf("%s: exit code %d, flags %q, calls %q\n%s", name, code, got, s.Read("calls"), out)
		}
	}
}

//go:build linux

package hitless_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gotest is the JSON output of tests.
type gotest struct{ lines []string }

func (g *gotest) add(action, test, output string) {
	line, _ := json.Marshal(struct{ Action, Package, Test, Output string }{action, "example.com/probes", test, output})
	g.lines = append(g.lines, string(line))
}

// skips is a test that skips, as go test tells it.
func (g *gotest) skips(test, reason string) {
	g.add("run", test, "")
	g.add("output", test, "    x_test.go:7: before\n")
	g.add("output", test, "    private_netns_test.go:17: "+reason+"\n")
	g.add("output", test, "--- SKIP: "+test+" (0.00s)\n")
	g.add("skip", test, "")
}

// Only a test that runs elsewhere or by hand, and a few that a busy machine cannot measure, may skip in CI. By hand all are only listed.
func TestUnexpectedSkipsFailInCI(t *testing.T) {
	const namespaces, busy = "this machine grants no namespaces", `the machine is too busy to measure: ["lane \"canary\" fell behind"]`
	for name, c := range map[string]struct {
		make   func(g *gotest)
		fails  bool
		listed []string
	}{
		"nothing":        {func(g *gotest) { g.add("pass", "TestA", "") }, false, []string{"none"}},
		"by hand":        {func(g *gotest) { g.skips("TestA", "runs only by hand, with -pages") }, false, []string{"TestA", "by hand"}},
		"of the machine": {func(g *gotest) { g.skips("TestA/one", namespaces) }, true, []string{"TestA/one", namespaces}},
		"no reason":      {func(g *gotest) { g.add("skip", "TestA", "") }, true, []string{"tells no reason"}},
		"in one of two calls": {func(g *gotest) {
			g.skips("TestA", namespaces)
			g.add("pass", "TestA", "")
		}, false, []string{"none"}},
		"a busy machine": {func(g *gotest) { g.skips("TestA", busy) }, false, []string{"TestA", "fell behind"}},
		"too many on a busy machine": {func(g *gotest) {
			for i := range 6 {
				g.skips(fmt.Sprint("Test", i), busy)
			}
		}, true, []string{"Test0", "Test5"}},
	} {
		var g gotest
		c.make(&g)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tests-1.json"), []byte(strings.Join(g.lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, ci := range []string{"", "true"} {
			cmd := exec.Command("hack/skips.sh")
			cmd.Env = append(os.Environ(), "HITLESS_TIMES="+dir, "CI="+ci)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (c.fails && ci != "") {
				t.Errorf("%s, CI=%s: %v\n%s", name, ci, err, out)
			}
			for _, want := range c.listed {
				if !strings.Contains(string(out), want) {
					t.Errorf("%s: no %q in\n%s", name, want, out)
				}
			}
		}
	}
}

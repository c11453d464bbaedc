//go:build linux

package hack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// suitePrograms are what programs do that hack/upstream-e2e.sh calls.
type suitePrograms struct {
	junit, status string // of ginkgo: the file that it writes, and its exit code
	kubectl       string
	build         string // patterns and commands of a shell's case for "build" and its first argument
}

// upstreamSuite runs hack/upstream-e2e.sh with programs that stand for hitless, ginkgo and kubectl.
func upstreamSuite(t *testing.T, p suitePrograms) (code int, said string, s scripttest.Tree) {
	t.Helper()
	s = scripttest.New(t, "upstream-e2e.sh", map[string]string{
		"ginkgo":  "cat >out/junit.xml <<'END'\n" + p.junit + "\nEND\nexit " + p.status + "\n",
		"kubectl": p.kubectl,
	})
	s.Program("bin/hitless", `case "$1 $2" in
`+p.build+`
"build e2e.test"*) printf 'e2e.test@v1\t/bin/true\nginkgo@v1\tbin/ginkgo\nkubectl@v1\t`+s.Dir+`/bin/kubectl\n' ;;
"build guest-tools") printf 'tools\n\tsha256 abc\n' ;;
"version "*) echo "hitless v1 go1 def" ;;
"lab up") touch out/begun; exec env --default-signal=INT sh -c 'echo "the lab is up"; exec sleep 600' ;; # shells start it without; the signal may come at once
"lab shell") shift 5; exec "$@" ;;
esac
`)
	code, said = s.Run([]string{"FOCUS=x", "KERNEL=host", "OUT=" + s.Dir + "/out"}, "upstream-e2e.sh")
	return code, said, s
}

// Upstream's suite in which no spec ran is no failed spec: the script says why, and leaves no result. Its results are those of the specs that ran.
func TestUpstreamSuitesWithoutASpecAreNoResult(t *testing.T) {
	const skipped, passed, failed = `<testcase name="[It] a" status="skipped" time="0">`, `<testcase name="[It] b" status="passed" time="1.5">`,
		`<testcase name="[It] c" status="failed" time="2">`
	for name, c := range map[string]struct {
		junit, status string
		code          int
		want, specs   string
	}{
		"all skipped": {skipped + "\n" + skipped, "0", 2, "no spec matches FOCUS=x", ""},
		"no spec":     {"<testsuites/>", "0", 2, "no spec matches FOCUS=x", ""},
		"dead suite":  {skipped, "1", 2, "ended before a spec ran", ""},
		"a pass":      {skipped + "\n" + passed, "0", 0, "", "passed\t1\tb\n"},
		"a failure":   {passed + "\n" + failed, "1", 1, "", "passed\t1\tb\nfailed\t2\tc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, said, s := upstreamSuite(t, suitePrograms{junit: c.junit, status: c.status})
			if code != c.code || !strings.Contains(said, c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.want, said)
			}
			specs := s.Read("out/specs.tsv")
			if _, rows, _ := strings.Cut(specs, "\n"); rows != c.specs || s.Has("out/specs.tsv") != (c.specs != "") {
				t.Errorf("the specs are %q", specs)
			}
		})
	}
}

// A run of the subject and the policy of the page goes to docs/results, whichever verdict it has. Other runs do not, nor does one without a result.
func TestUpstreamsRollingUpdateIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		code      int // of the suite
		variables []string
		kept      bool
	}{
		"it passes":         {0, nil, true},
		"it fails":          {1, nil, true},
		"no result":         {2, nil, false},
		"another subject":   {0, []string{"SUBJECT=bundled"}, false},
		"another policy":    {0, []string{"POLICY=Cluster"}, false},
		"with the defaults": {0, []string{"SUBJECT=kube-proxy@v1.25.3/iptables", "POLICY=Local"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := scripttest.New(t, "upstream-rolling-update.sh", map[string]string{"go": "echo \"$@\" >>calls\n"})
			s.Program("hack/upstream-e2e.sh", `mkdir -p "$OUT/watch"
echo '{"started": "2026-11-27T17:00:00Z"}' >"$OUT/watch/host.json"
echo 'I1127 17:00:10.5 1 x.go:1] Success rate: 99.93%' >"$OUT/junit.xml"
exit `+fmt.Sprint(c.code)+"\n")
			code, said := s.Run(append(c.variables, "OUT="+s.Dir+"/out"), "upstream-rolling-update.sh")
			if code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, said)
			}
			want := ""
			if c.kept {
				want = "run ./hack/docs rolling-update DIR/out kube-proxy v1.25.3/iptables\n"
			}
			if calls := s.Read("calls"); calls != want {
				t.Errorf("called go with %q, want %q:\n%s", calls, want, said)
			}
			if lines := s.Read("out/upstream.log"); c.code < 2 && !strings.HasPrefix(lines, "the watch began at 2026-11-27T17:00:00Z\nI1127") {
				t.Errorf("the log of upstream: %q", lines)
			}
		})
	}
}

// The suite takes hours: what its result must tell is known before it begins. A failure says what is missing.
func TestUpstreamSuitesKnowWhatMadeThemBeforeTheyBegin(t *testing.T) {
	const passed = `<testcase name="[It] b" status="passed" time="1.5">`
	for name, c := range map[string]struct{ build, want string }{
		"all is known":       {"", ""},
		"no tools":           {`"build guest-tools") exit 1 ;;`, "asking for the digest of the tools failed"},
		"tools of no digest": {`"build guest-tools") echo tools ;;`, "tells no digest"},
		"no control plane":   {`"build control-plane") echo no module >&2; exit 1 ;;`, "no module\nupstream-e2e: building the control plane failed"},
		"no proxy":           {`"build kube-proxy@v1.37.1") exit 1 ;;`, "building kube-proxy@v1.37.1 failed"},
		"a lost program":     {`"build control-plane") printf 'etcd@v1\t/nowhere\n' ;;`, "the program etcd@v1 could not be read"},
		"no version":         {`"version ") exit 1 ;;`, "hitless version"},
	} {
		code, said, s := upstreamSuite(t, suitePrograms{junit: passed, status: "0", build: c.build})
		if begun := s.Has("out/begun"); (code == 2) != (c.want != "") || begun != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: exit code %d, the lab began: %v, want %q:\n%s", name, code, begun, c.want, said)
		}
		if specs := s.Read("out/specs.tsv"); c.want == "" && (!strings.HasPrefix(specs, `# {"subject":"kube-proxy@v1.37.1/nftables","programSha256":"def"`) ||
			!strings.Contains(specs, `"tools":"abc"`) || strings.Count(specs, `"sha256":"`) != 3) {
			t.Errorf("%s: %s", name, specs)
		}
	}
}

// After a failed spec the logs of the lab's programs are kept. The script says so if there are none.
func TestUpstreamSuitesKeepLogs(t *testing.T) {
	const lost = "the logs of the lab's programs could not be read"
	for name, c := range map[string]struct {
		kubectl string
		kept    map[string]string
		want    string
	}{
		"all":         {`case "$*" in */) echo '<a href="a.log">a.log</a><a href="b.log">b.log</a>' ;; *) echo "of ${0##*/} $*" ;; esac`, map[string]string{"a.log": "logs/a.log", "b.log": "logs/b.log"}, ""},
		"one is lost": {`case "$*" in */) echo '<a href="a.log">a.log</a><a href="b.log">b.log</a>' ;; */a.log) exit 1 ;; *) echo "of $*" ;; esac`, map[string]string{"b.log": "logs/b.log"}, "the log a.log could not be read"},
		"no kubelet":  {"exit 1", nil, lost},
		"no log":      {"echo nothing", nil, lost},
	} {
		code, said, s := upstreamSuite(t, suitePrograms{junit: `<testcase name="[It] c" status="failed" time="2">`, status: "1", kubectl: c.kubectl})
		if code != 1 || !strings.Contains(said, c.want) || strings.Contains(said, lost) != (c.want == lost) {
			t.Errorf("%s: exit code %d, want %q:\n%s", name, code, c.want, said)
		}
		for log, want := range c.kept {
			if text := s.Read("out/logs/" + log); !strings.Contains(text, want) {
				t.Errorf("%s: %s has %q", name, log, text)
			}
		}
	}
}

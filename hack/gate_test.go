//go:build linux

package hack_test

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
	"github.com/hitless/hitless/internal/testfiles"
)

// measuring is a tree for a script that measures with the hitless of another folder, whose text this is.
func measuring(t *testing.T, script, hitless string) (s scripttest.Tree, run func(variables ...string) (code int, out string)) {
	t.Helper()
	s = scripttest.New(t, script, nil)
	s.Program("version/bin/hitless", hitless)
	return s, func(variables ...string) (code int, out string) {
		return s.Run(append(variables, "HITLESS="+s.Dir+"/version", "OUT="+s.Dir+"/out"), script)
	}
}

// gate runs hack/gate.sh with a hitless whose commands run and gate end with these exit codes.
func gate(t *testing.T, run, gate string, variables ...string) (code int, s scripttest.Tree) {
	t.Helper()
	s, call := measuring(t, "gate.sh", "echo \"$*\" >>calls\ncase $1 in run) exit "+run+";; gate) echo judged; exit "+gate+";; esac\n")
	code, _ = call(append(variables, "SCENARIO=rollout", "SUBJECT=bundled")...)
	return code, s
}

func TestGateExitCodes(t *testing.T) {
	const first = "run rollout --subject bundled --seed 1 --controlplane replay --out DIR/out"
	for _, c := range []struct {
		name, run, gate string
		variables       []string
		code            int
		calls           string
	}{
		{"a run that passes", "0", "9", nil, 0, first + "\n"},
		{"a run that fails", "1", "9", nil, 1, first + "\n"},
		{"a loss within the budget", "1", "0", []string{"BUDGET=b.yaml"}, 0, first + "\ngate DIR/out --budget b.yaml\n"},
		{"a loss over the budget", "1", "1", []string{"BUDGET=b.yaml"}, 1, first + "\ngate DIR/out --budget b.yaml\n"},
		{"an invalid run", "3", "0", []string{"BUDGET=b.yaml"}, 3, first + "\n"},
		{"parameters", "0", "9", []string{"SET=rollouts=1\nreplicas=2"}, 0, first + " --set rollouts=1 --set replicas=2\n"},
	} {
		code, s := gate(t, c.run, c.gate, c.variables...)
		if calls := s.Read("calls"); code != c.code || calls != c.calls {
			t.Errorf("%s: exit code %d after\n%swant %d after\n%s", c.name, code, calls, c.code, c.calls)
		}
	}
}

// The summary of a GitHub job begins with the verdict that decides: that by the budget, if there is one.
func TestTheSummaryOfAJobHasTheVerdictByTheBudget(t *testing.T) {
	for want, variables := range map[string][]string{"": {}, "## By the budget b.yaml\n\n```\njudged\n```\n\n": {"BUDGET=b.yaml"}} {
		_, s := gate(t, "1", "0", append(variables, "GITHUB_STEP_SUMMARY=summary.md")...)
		if got := s.Read("summary.md"); got != want || !s.Has("summary.md") {
			t.Errorf("with %q the summary is %q, want %q", variables, got, want)
		}
	}
}

// hack/versions.sh runs all scenarios and exits with the worst code.
func TestVersionsExitsWithTheWorstCode(t *testing.T) {
	for want, cases := range map[int]string{0: "", 1: "*kill*) exit 1;;", 3: "*kill*) exit 3;; *scaledown*) exit 1;;"} {
		s, run := measuring(t, "versions.sh", "echo \"$*\" >>calls\ncase \"$*\" in "+cases+" esac\n")
		code, out := run("OLD=v1.36.1", "NEW=v1.37.1", "MODE=ipvs", "RUNS=4")
		const pair = "--subject kube-proxy@v1.36.1/ipvs --subject kube-proxy@v1.37.1/ipvs --controlplane replay --runs 4"
		if calls := s.Read("calls"); code != want || strings.Count(calls, pair) != 4 {
			t.Errorf("exit code %d, want %d, after\n%s%s", code, want, calls, out)
		}
	}
}

// An interrupt ends a comparison of versions: the next scenario does not begin.
func TestInterruptsEndComparisonsOfVersions(t *testing.T) {
	for _, code := range []string{"130", "143"} {
		s, run := measuring(t, "versions.sh", "echo $2 >>calls\n[ $2 != restart ] || exit "+code+"\n")
		got, out := run("OLD=v1.36.1", "NEW=v1.37.1", "MODE=ipvs")
		if calls := s.Read("calls"); calls != "rollout\nrestart\n" || got != 130 && got != 143 || !strings.Contains(out, "interrupted") {
			t.Errorf("exit code %d after %q:\n%s", got, calls, out)
		}
	}
}

// A variable that is missing is a wrong call, and no loss of connections.
func TestScriptsNameTheVariablesThatTheyLack(t *testing.T) {
	for script, words := range map[string]string{"gate.sh": "SCENARIO SUBJECT OUT", "versions.sh": "OLD NEW MODE", "publish.sh": "TAG"} {
		s := scripttest.New(t, script, nil)
		for _, missing := range strings.Fields(words) {
			variables := []string{missing + "=", "HITLESS=/nowhere"}
			for _, name := range strings.Fields(words) {
				if name != missing {
					variables = append(variables, name+"=x")
				}
			}
			if code, out := s.Run(variables, script); code != 2 || !strings.Contains(out, "set "+missing+",") {
				t.Errorf("%s without %s: exit code %d\n%s", script, missing, code, out)
			}
		}
		if code, out := s.Run(nil, script); code != 2 || !strings.Contains(out, "set "+words) {
			t.Errorf("%s without all of %s: exit code %d\n%s", script, words, code, out)
		}
	}
}

// A group of packages that does not exist is named, beside those that do.
func TestUnknownGroupsOfPackages(t *testing.T) {
	s := scripttest.New(t, "packages.sh packages.txt", nil)
	s.Write("internal/run/packages.txt", string(testfiles.Read(t, "../internal/run", "packages.txt")[0]))
	code, out := s.Run(nil, "packages.sh", "tset")
	if code != 2 || !strings.Contains(out, "no group of packages is called tset; the groups are base lab make tests browser cross lint") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

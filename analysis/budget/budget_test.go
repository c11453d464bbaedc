package budget

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

func load(t testing.TB, text string) (*File, error) {
	t.Helper()
	return Load(t.Context(), testfiles.Write(t, t.TempDir(), "b.yaml", []byte(text)))
}

func TestLoad(t *testing.T) {
	if f, err := load(t, "dropped: 3\ndelayed: 10\n"); err != nil || !reflect.DeepEqual(f.Budget, record.Budget{Dropped: 3, Delayed: 10}) {
		t.Errorf("%+v, %v", f, err)
	}
	number, length := func(n int) *int { return &n }, record.Length(1500e6)
	f, err := load(t, "rules:\n- scenario: drain\n  role: disturbed\n  cause: node off\n  dropped: 7\n  longestGap: 1.5s\n- {lane: tcp-new, p99: 1500ms}\n")
	want := []record.BudgetRule{{Selector: record.Selector{Scenario: "drain", Role: record.RoleDisturbed, Cause: "node off"}, Limits: record.Limits{Dropped: number(7), LongestGap: &length}},
		{Selector: record.Selector{Lane: "tcp-new"}, Limits: record.Limits{P99: &length}}}
	if err != nil || !reflect.DeepEqual(f.Rules, want) {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Load(t.Context(), filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gave %v", err)
	}
}

// A budget can name every cause that a report can have: of a loss by a node, too, which the API shows on live clusters.
func TestLoadKnowsTheCausesOfNodes(t *testing.T) {
	for _, state := range []string{"off", "unready", "removed", "cordoned"} {
		if _, err := load(t, "rules: [{cause: node "+state+", dropped: 1}]\n"); err != nil {
			t.Error(err)
		}
	}
}

// Each of these budgets says something that it cannot mean. The error names the line.
func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"droped: 3\n": ":1: unknown key", "dropped: -1\n": ":1: dropped", "dropped: 1.5\n": ":1: dropped", "dropped: [": "not YAML", "dropped: 1\ndropped: 2\n": ":2: dropped is given twice",
		"slowPercent: -1\n": ":1: ", "slowPercent: 101\n": ":1: ", "p99ExtraMs: -1\n": ":1: ", "slowPercent: .nan\n": ":1: ",
		"rules: 3\n":                                                        ":1: rules: want a list",
		"rules: []\n":                                                       ":1: rules: want a list",
		"rules:\n- 3\n":                                                     ":2: want key: value lines",
		"rules:\n- lane: web\n  drop: 1\n":                                  `:3: unknown key "drop"`,
		"rules:\n- lane: web\n":                                             ":2: this rule limits nothing",
		"rules:\n- lane: 3\n  dropped: 1\n":                                 ":2: lane: want a text",
		"rules:\n- lane: [web]\n  dropped: 1\n":                             ":2: lane: want a text",
		"rules:\n- lane: ''\n  dropped: 1\n":                                ":2: lane: want a text",
		"rules:\n- class: lost\n  dropped: 1\n":                             `:2: class: "lost" is none of`,
		"rules:\n- class: ok\n  dropped: 1\n":                               `:2: class: "ok" is none of`,
		"rules:\n- role: broken\n  dropped: 1\n":                            `:2: role: "broken" is none of disturbed, other`,
		"rules:\n- cause: node of\n  dropped: 1\n":                          `:2: cause: "node of" is none of`,
		"rules:\n- dropped: many\n":                                         ":2: dropped: ",
		"rules:\n- longestGap: 3\n":                                         ":2: longestGap: ",
		"rules:\n- outage: -3s\n":                                           ":2: outage: ",
		"rules:\n- longestGap: [3s]\n":                                      ":2: longestGap: ",
		"rules:\n- class: refused\n  p99: 3s\n":                             ":2: p99 is measured for whole lanes",
		"rules:\n- node: node-1\n  p99: 3s\n  dropped: 1\n":                 ":2: p99 is measured for whole lanes",
		"rules:\n- class: delayed\n  dropped: 3\n":                          ":2: an attempt of the class delayed is not dropped",
		"rules:\n- class: refused\n  delayed: 3\n":                          ":2: an attempt of the class refused is not delayed",
		"rules:\n- lane: a\n  dropped: 1\n- lane: a\n  longestGap: 1s\n":    ":4: this rule selects the same as the rule in line 2",
		"rules:\n- lane: a\n  dropped: 1\n- lane: a\n  p99: 1s\n":           ":4: this rule selects the same as the rule in line 2",
		"rules:\n- lane: a\n  dropped: 1\n- {lane: a, node: b, outage: 1s}": ":4: this rule can never apply, because the rule in line 2",
		"rules:\n- dropped: 1\n- {lane: a, dropped: 1}\n":                   ":3: this rule can never apply",
		"rules:\n- p99: 1s\n- {lane: a, p99: 2s}\n":                         ":3: the p99 of this rule can never apply",
		"dropped: 3\nrules:\n- dropped: 1\n":                                ":3: this rule selects every lost attempt",
	} {
		if f, err := load(t, text); err == nil || !strings.Contains(err.Error(), "b.yaml"+want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%q was read as %+v, %v; want %q", text, f, err, want)
		}
	}
	for _, text := range []string{"slowPercent: 0.3\np99ExtraMs: 100\n", "rules:\n- {lane: a, node: b, outage: 1s}\n- lane: a\n  dropped: 1\n", "rules:\n- p99: 1s\n- {lane: a, dropped: 2}\n",
		"rules:\n- {class: delayed, delayed: 3}\n- {class: refused, dropped: 1}\n", "dropped: 3\nrules:\n- p99: 1s\n"} {
		if _, err := load(t, text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A rule that names what the run lacks is an error with its line; one for another scenario is none.
func TestRulesForWhatTheRunLacks(t *testing.T) {
	h := history(t, out, dark)
	for text, want := range map[string]string{
		"rules:\n- dropped: 3\n  lane: tcp-long\n":                    `b.yaml:2: the run has no measured lane "tcp-long"`,
		"rules:\n- dropped: 3\n  lane: canary\n":                      `b.yaml:2: the run has no measured lane "canary"`,
		"rules:\n- dropped: 3\n  node: node-9\n":                      `b.yaml:2: the run has no node "node-9"`,
		"rules:\n- {scenario: drain, dropped: 3, lane: tcp-long}\n":   `b.yaml:2: the run has no measured lane`,
		"rules:\n- {scenario: scale, dropped: 3, lane: tcp-long}\n":   "",
		"rules:\n- {scenario: scale, node: node-9, longestGap: 1s}\n": "",
	} {
		f, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.Judge(h); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	f, err := load(t, "rules:\n- {scenario: dran, dropped: 3}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.CheckScenarios([]string{"drain"}); err == nil || !strings.Contains(err.Error(), `b.yaml:2: there is no scenario "dran"`) {
		t.Errorf("a scenario that does not exist: %v", err)
	}
	if err := f.CheckScenarios([]string{"drain", "dran"}); err != nil {
		t.Error(err)
	}
	f, err = load(t, "rules:\n- {lane: tcp-long, dropped: 3}\n")
	if err != nil {
		t.Fatal(err)
	}
	if f.CheckLanes("drain", []string{"tcp-long"}) != nil || f.CheckLanes("drain", []string{"tcp-new"}) == nil {
		t.Error("the lanes of a run are not compared with those of the rules")
	}
}

// A budget in a record that names what the run lacks gives no verdict.
func TestARecordsOwnBudgetThatDoesNotFitIsInvalid(t *testing.T) {
	h := history(t, out, dark, func(s lab) {
		n := 3
		s.Run.Budget.Rules = []record.BudgetRule{{Selector: record.Selector{Lane: "tcp-long"}, Limits: record.Limits{Dropped: &n}}}
	})
	if r, err := judge(t, h, ""); err != nil || r.Verdict != "invalid" || !strings.Contains(r.Reasons[0], `no measured lane "tcp-long"`) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A budget that is taken allows no negative loss, and comes back when it is written as a record has it.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{"", "dropped: 3\ndelayed: 0\n", "dropped: -1", "droped: 1", "dropped: [1]", "{dropped: 1e3}", "- a", "dropped: 9999999999999999999999", "\x00", "a: &a [*a]",
		"slowPercent: 3\np99ExtraMs: 2\nrules:\n- {class: refused, longestGap: 1h, dropped: 3}\n- p99: 3ms\n", "rules: &a [*a]", "rules: [{dropped: 1}]", "rules: [&a {lane: a, dropped: 1}, *a]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := load(t, string(data))
		if err != nil {
			return
		}
		text, err := json.Marshal(b.Budget)
		if err != nil {
			t.Fatal(err)
		}
		again, err := load(t, string(text))
		if err != nil || !reflect.DeepEqual(again.Budget, b.Budget) || b.Dropped < 0 || b.Delayed < 0 {
			t.Fatalf("%q was read as %+v and comes back as %s, %v", data, b, text, err)
		}
	})
}

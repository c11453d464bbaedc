package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A comparison is checked before its first run, and its command repeats what was asked.
func TestAComparisonIsCheckedBeforeItsRuns(t *testing.T) {
	budget, broken := filepath.Join(t.TempDir(), "budget.yaml"), filepath.Join(t.TempDir(), "broken.yaml")
	for file, text := range map[string]string{budget: "dropped: 5\n", broken: "drop: 5\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Scenario: "restart"}
	o.Cache = t.TempDir()
	if err := o.fillDefaults(); err != nil {
		t.Fatal(err)
	}
	subjects := []string{"bundled", "kube-proxy@v1.37.1/ipvs"}
	asked := Comparison{Subjects: subjects, Runs: 4, Against: subjects[1], BudgetFile: budget}
	compared, options, err := o.comparable(t.Context(), asked)
	if err != nil || len(compared) != 2 || len(compared[0].Runs) != 4 || options.Against != subjects[1] || options.Budget == nil || options.Budget.Dropped != 5 {
		t.Errorf("%+v, %+v, %v", compared, options, err)
	}
	if command := o.compareCommand(asked); !strings.Contains(command, "--against kube-proxy@v1.37.1/ipvs --budget "+budget+" --runs 4") {
		t.Errorf("the command is %s", command)
	}
	if _, options, err := o.comparable(t.Context(), Comparison{Subjects: subjects, Runs: 4}); err != nil || options.Against != "" || options.Budget != nil {
		t.Errorf("without a reference and a budget: %+v, %v", options, err)
	}
	for name, wrong := range map[string]Comparison{"--against": {Subjects: subjects, Runs: 1, Against: "kube-proxy@v1.37.1/nftables"},
		"broken.yaml": {Subjects: subjects, Runs: 1, BudgetFile: broken}, "cilium": {Subjects: []string{"bundled", "cilium"}, Runs: 1}} {
		if _, _, err := o.comparable(t.Context(), wrong); !IsUsage(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// In a comparison the subject of `to` is upgraded to itself, beside one that is upgraded to it. A run alone is still refused.
func TestAnUpgradeIsComparedWithTheRestartsOfTheNewVersion(t *testing.T) {
	const old, next = "kube-proxy@v1.36.1/ipvs", "kube-proxy@v1.37.1/ipvs"
	o := Options{Scenario: "upgrade", Set: map[string]string{"to": next}}
	o.Cache = t.TempDir()
	if err := o.fillDefaults(); err != nil {
		t.Fatal(err)
	}
	asked := Comparison{Subjects: []string{old, next}, Runs: 1}
	if _, _, err := o.comparable(t.Context(), asked); err != nil {
		t.Error(err)
	}
	if from, control := o.of(old), o.of(next); from.Set["to"] != next || control.Set["to"] != "itself" || control.Subject != next || o.Set["to"] != next {
		t.Errorf("%v, %v, %v", from.Set, control.Set, o.Set)
	}
	if command := o.compareCommand(asked); !strings.Contains(command, "--set to="+next) {
		t.Errorf("the command is %s", command)
	}
	o.Subject = next
	if _, _, err := o.plan(); !IsUsage(err) {
		t.Errorf("a run: %v", err)
	}
}

package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports/compare"
)

// A comparison is checked before its first run, and its command repeats what was asked.
func TestAComparisonIsCheckedBeforeItsRuns(t *testing.T) {
	budget, broken := filepath.Join(t.TempDir(), "my budget.yaml"), filepath.Join(t.TempDir(), "broken.yaml")
	for file, text := range map[string]string{budget: "dropped: 5\n", broken: "drop: 5\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Scenario: "restart"}
	o.Cache = t.TempDir()
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	subjects := []string{"bundled", "kube-proxy@v1.37.1/ipvs"}
	asked := Comparison{Subjects: subjects, Runs: 4, Against: subjects[1], BudgetFile: budget}
	compared, options, err := o.comparable(t.Context(), asked)
	if err != nil || len(compared) != 2 || len(compared[0].Runs) != 4 || options.Against != subjects[1] || options.Budget == nil || options.Budget.Dropped != 5 {
		t.Errorf("%+v, %+v, %v", compared, options, err)
	}
	o.Budget = budget // as Compare sets it for the runs
	if command := o.compareCommand(asked); !strings.Contains(command, "--against kube-proxy@v1.37.1/ipvs --budget '"+budget+"' --runs 4") || strings.Count(command, "--budget") != 1 {
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

// Kernels are compared as subjects are: each subject on each of them, by its name. One kernel alone is that of all runs.
func TestKernelsAreCompared(t *testing.T) {
	cache := t.TempDir()
	kernel := func(name string) string { // one with all modules built in
		dir := filepath.Join(t.TempDir(), name)
		files := map[string]string{"vmlinuz": name, "lib/modules/6.1.0/kernel/none": "", "lib/modules/6.1.0/modules.builtin": builtinModules()}
		for file, text := range files {
			path := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	a, b := kernel("a"), kernel("b")
	o := Options{Scenario: "restart"}
	o.Cache, o.Kernel = cache, "vm"
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		asked Comparison
		want  []string
		first string
	}{
		{Comparison{Kernels: []string{a, b}}, []string{"bundled on a", "bundled on b"}, ""},
		{Comparison{Kernels: []string{a, b}, Against: "bundled on b"}, []string{"bundled on a", "bundled on b"}, "bundled on b"},
		{Comparison{Kernels: []string{a, b}, Against: b}, []string{"bundled on a", "bundled on b"}, "bundled on b"},
		{Comparison{Subjects: []string{"bundled", "kube-proxy@v1.37.1/ipvs"}, Kernels: []string{a, b}, Against: "kube-proxy@v1.37.1/ipvs"},
			[]string{"bundled on a", "bundled on b", "kube-proxy@v1.37.1/ipvs on a", "kube-proxy@v1.37.1/ipvs on b"}, "kube-proxy@v1.37.1/ipvs on a"},
		{Comparison{Subjects: []string{"bundled", "kube-proxy@v1.37.1/ipvs"}, Kernels: []string{a}}, []string{"bundled", "kube-proxy@v1.37.1/ipvs"}, ""},
	} {
		c.asked.Runs = 1
		compared, options, err := o.comparable(t.Context(), c.asked)
		var names []string
		for _, s := range compared {
			names = append(names, s.Subject)
		}
		if err != nil || !slices.Equal(names, c.want) || options.Against != c.first || options.Kernels != (len(c.asked.Kernels) > 1) {
			t.Errorf("%+v: %q against %q, kernels %t, %v", c.asked, names, options.Against, options.Kernels, err)
		}
		if command := o.compareCommand(c.asked); strings.Count(command, "--guest-kernel") != len(c.asked.Kernels) {
			t.Errorf("the command is %s", command)
		}
		for _, v := range c.asked.variants(o) {
			if one := o.of(v); !slices.Contains(c.asked.Kernels, one.GuestKernel) {
				t.Errorf("%+v runs on %q", v, one.GuestKernel)
			}
		}
	}
	lacking := kernel("c")
	if err := os.WriteFile(filepath.Join(lacking, "lib/modules/6.1.0/modules.builtin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]Comparison{"ip_vs": {Kernels: []string{a, lacking}, Runs: 1}, "given twice": {Kernels: []string{a, a}, Runs: 1},
		"unknown kernel": {Kernels: []string{a, "debian-14"}, Runs: 1}, "--against": {Kernels: []string{a, b}, Runs: 1, Against: "debian-13"}} {
		if _, _, err := o.comparable(t.Context(), wrong); !IsUsage(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, runs := range []int{0, -1, 10_001} {
		if _, err := Compare(t.Context(), o, Comparison{Kernels: []string{a, b}, Runs: runs}); !IsUsage(err) || !strings.Contains(err.Error(), "--runs") {
			t.Errorf("%d runs: %v", runs, err)
		}
	}
	if _, err := Compare(t.Context(), o, Comparison{Kernels: []string{a}, Runs: 1}); !IsUsage(err) {
		t.Errorf("one kernel and no subject: %v", err)
	}
}

// builtinModules is a modules.builtin with all that labs load.
func builtinModules() string {
	var b strings.Builder
	for _, name := range vm.Modules {
		b.WriteString("kernel/net/" + name + ".ko\n")
	}
	return b.String()
}

// In a comparison the subject of `to` is upgraded to itself, beside one that is upgraded to it. A run alone is still refused.
func TestAnUpgradeIsComparedWithTheRestartsOfTheNewVersion(t *testing.T) {
	const old, next = "kube-proxy@v1.36.1/ipvs", "kube-proxy@v1.37.1/ipvs"
	o := Options{Scenario: "upgrade", Set: map[string]string{"to": next}}
	o.Cache = t.TempDir()
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := Comparison{Subjects: []string{old, next}, Runs: 1}
	if _, _, err := o.comparable(t.Context(), asked); err != nil {
		t.Error(err)
	}
	if from, control := o.of(variant{subject: old}), o.of(variant{subject: next}); from.Set["to"] != next || control.Set["to"] != "itself" || control.Subject != next || o.Set["to"] != next {
		t.Errorf("%v, %v, %v", from.Set, control.Set, o.Set)
	}
	if command := o.compareCommand(asked); !strings.Contains(command, "--set to="+next) {
		t.Errorf("the command is %s", command)
	}
	o.Subject = next
	if _, _, err := o.plan(t.Context()); !IsUsage(err) {
		t.Errorf("a run: %v", err)
	}
}

// The folders of shards are those of the runs, by the names that the call gives, and all differ. actions/upload-artifact and NTFS take them.
func TestFoldersOfRunsHaveTheNamesOfTheCall(t *testing.T) {
	variants := []variant{{"cilium@1.20.2", ""}, {"bundled", ""}}
	compared := []compare.Subject{{Subject: "cilium@v1.20.2"}, {Subject: "bundled"}}
	want := []string{"cilium-1.20.2-seed-1", "bundled-seed-1", "cilium-1.20.2-seed-2", "bundled-seed-2"}
	if got := runFolders(variants, compared, 2, compare.Options{}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	strange := runFolders([]variant{{`exec:hack\my "p".yaml`, ""}, {"a<b>c|d*e?f", ""}}, compared, 1, compare.Options{})
	if len(strange) != 2 {
		t.Errorf("%q, want two folders", strange)
	}
	for _, name := range strange {
		if strings.ContainsAny(name, `\/:*?"<>|`) {
			t.Errorf("the folder %s cannot be stored everywhere", name)
		}
	}
	compared = []compare.Subject{{Subject: "bundled on debian-12"}, {Subject: "bundled on debian-13"}}
	want = []string{"bundled-on-debian-12-seed-1", "bundled-on-debian-13-seed-1"}
	if got := runFolders([]variant{{"bundled", "debian-12"}, {"bundled", "debian-13"}}, compared, 1, compare.Options{Kernels: true}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/merge"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios/museum"
)

// comparison writes the folder of a comparison with two runs of each subject. A class other than ok is that of its losses, after the event
// that a proxy was killed.
func comparison(t *testing.T, subjects map[string]record.Class, order ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var all []compare.Subject
	for _, name := range order {
		s := compare.Subject{Subject: name}
		for seed := range uint64(2) {
			o := recordtest.Rollout{Seed: seed + 1, Fallback: true, Rollouts: 1}
			l := o.Lab()
			l.Run.ProgramSha256, l.Run.Subject.Name = strings.Repeat("ab", 32), name
			if class := subjects[name]; class != record.OK {
				at := recordtest.ScenarioAt + 8*time.Second
				l.Event(at, record.KindProxy, "node-2", "bundled", "the proxy on node-2 was killed", "state", "killed")
				l.Faults = append(l.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: at + time.Millisecond, To: at + 300*time.Millisecond, Class: class})
			}
			s.Runs = append(s.Runs, comparedRun(t, dir, fmt.Sprintf("%s-%d", name, seed+1), o.Start(l)))
		}
		all = append(all, s)
	}
	c, err := compare.New("rollout", all, compare.Options{})
	if err == nil {
		err = compare.Write(dir, c, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func comparedRun(t *testing.T, dir, name string, l *recordtest.Lab) compare.Run {
	t.Helper()
	folder := filepath.Join(dir, name)
	if err := os.CopyFS(filepath.Join(folder, "history"), os.DirFS(l.Write(t).Dir())); err != nil {
		t.Fatal(err)
	}
	r, origin, err := reports.Seal(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	return compare.RunOf(r, filepath.Join(name, reports.ReportFile), origin.HistorySha256)
}

// The exit code of a comparison is that of docs/compare.md, from records to the command line.
func TestComparisonsExitByTheirVerdict(t *testing.T) {
	classes := map[string]record.Class{"old": record.OK, "also-old": record.OK, "drops": record.Refused, "delays": record.Delayed}
	for _, c := range []struct {
		order, flags, want string
		code               int
	}{
		{"old also-old", "", "PASS", 0},
		{"old drops", "", "2 of 2 runs dropped more", 1},
		{"old delays", "", "2 of 2 runs delayed more", 1},
		{"old drops also-old", "", "drops is worse than old", 1},
		{"drops old", "", "old is better than drops", 0},
		{"old drops", "--against drops", "old is better than drops", 0},
		{"delays drops", "", "new class refused", 1},
	} {
		args := append([]string{"report", comparison(t, classes, strings.Fields(c.order)...)}, strings.Fields(c.flags)...)
		if code, out, errs := executed(args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s %s: exit code %d, want %d and %q:\n%s%s", c.order, c.flags, code, c.code, c.want, out, errs)
		}
	}
}

// Runs of two programs are compared only on request.
func TestRunsOfTwoProgramsAreComparedOnRequest(t *testing.T) {
	dir := comparison(t, map[string]record.Class{"a": record.OK, "b": record.OK}, "a", "b")
	o := recordtest.Rollout{Seed: 1, Fallback: true, Rollouts: 1}
	if err := os.RemoveAll(filepath.Join(dir, "b-1")); err != nil {
		t.Fatal(err)
	}
	comparedRun(t, dir, "b-1", o.Start(o.Lab()))
	for flags, want := range map[string]struct {
		code int
		text string
	}{"": {3, "different programs: abababababab (2 runs of a, 1 run of b), not recorded (1 run of b)"}, "--mixed": {0, "PASS"}} {
		if code, out, errs := executed(append([]string{"report", dir}, strings.Fields(flags)...)...); code != want.code || !strings.Contains(out, want.text) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s%s", flags, code, want.code, want.text, out, errs)
		}
	}
}

// The answer to a bug is printed also if its museum.json has no reason for it.
func TestAnswerWithoutAReason(t *testing.T) {
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	if err := concludeMerge(cmd, &merge.Whole{Bugs: []run.BugResult{{ID: "k8s-1", Answer: museum.NotSeen}}}, ""); err != nil || !strings.Contains(out.String(), "k8s-1") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// The call that a shard names can be given to a shell, and is that of the other shards, on whatever machine they run.
func TestTheCallOfAShardCanBeRepeated(t *testing.T) {
	for name, of := range map[string]struct {
		make       func() *cobra.Command
		args, also []string
	}{
		"soak":   {soakCommand, []string{"--keep-going", "--seeds", "1..4"}, nil},
		"museum": {museumRunCommand, []string{"--all", "--seed=-7"}, []string{"--json"}},
	} {
		dir := t.TempDir()
		given := append([]string{"--set", "k=it's a b", "--set", "x=y,z", "--nodes", "5", "--subject", "exec:" + filepath.Join(dir, "a b.yaml"), "--guest-kernel", dir}, of.args...)
		parsed := func(args ...string) (*cobra.Command, string) {
			cmd := of.make()
			flags.Strict(cmd)
			if err := cmd.ParseFlags(args); err != nil {
				t.Fatal(name, err)
			}
			return cmd, callOf(cmd)
		}
		_, call := parsed(append(given, "--shard", "1/2")...)
		_, other := parsed(append(append(given, of.also...), "--shard", "2/2", "--binaries", dir, "--out", dir, "--sign", filepath.Join(dir, "key"))...)
		if call != other {
			t.Errorf("shards of one call have %s and %s", call, other)
		}
		c, err := record.ParseCommand(call)
		if err != nil || !slices.Equal(c.Set(), []string{"k=it's a b", "x=y,z"}) || !slices.Equal(c.Values("subject"), []string{"exec:a b.yaml"}) ||
			!slices.Equal(c.Values("guest-kernel"), []string{filepath.Base(dir)}) {
			t.Fatalf("%s: %v", call, err)
		}
		again, repeated := parsed(c.Words[2:]...)
		if set := valuesOf(again.Flags().Lookup("set")); !slices.Equal(set, c.Set()) || repeated != call {
			t.Errorf("%s is read as %s with %q", call, repeated, set)
		}
	}
}

// The call of a conformance report leaves out the selection, the part and the places of a machine.
func TestTheCallOfAConformanceReport(t *testing.T) {
	cmd := conformanceCommand()
	flags.Strict(cmd)
	if err := cmd.ParseFlags([]string{"--subject", "exec:/some folder/a b.yaml", "--kubeconfig", "/home/me/config", "--context", "it's", "--seed", "3", "--focus", "x", "--skip", "y",
		"--label-filter", "core", "--shard", "1/2", "--out", "o", "--museum", "m.json", "--sign", "key", "--dry-run", "--address-within", "5m"}); err != nil {
		t.Fatal(err)
	}
	if got, want := callOf(cmd), `hitless conformance --context 'it'\''s' --kubeconfig FILE --seed 3 --subject 'exec:a b.yaml'`; got != want {
		t.Errorf("the call is %s, want %s", got, want)
	}
}

// The worker of a watch gets the flags as they were given, and one that resumes it finds the files from any folder.
func TestArgumentsOfTheWorkerOfAWatch(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	cmd := watchStart()
	flags.Strict(cmd)
	if err := cmd.ParseFlags([]string{"--kubeconfig", "k", "--selector", "tier in (a,b)", "--sign", "key", "--out", "o", "--rate", "5"}); err != nil {
		t.Fatal(err)
	}
	parsed := func(args []string) map[string]string {
		worker := watchWorker()
		if err := worker.ParseFlags(args[2:]); err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		worker.Flags().Visit(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
		return values
	}
	want := map[string]string{"kubeconfig": "k", "selector": "tier in (a,b)", "sign": "key", "out": "o", "rate": "5"}
	if got := parsed(workerArgs(cmd, nil)); !maps.Equal(got, want) {
		t.Errorf("the worker gets %v, want %v", got, want)
	}
	args, err := resumeArgs(cmd)
	delete(want, "out")
	want["kubeconfig"], want["sign"] = filepath.Join(dir, "k"), filepath.Join(dir, "key")
	if got := parsed(args); err != nil || !maps.Equal(got, want) {
		t.Errorf("the one that resumes gets %v (%v), want %v", got, err, want)
	}
}

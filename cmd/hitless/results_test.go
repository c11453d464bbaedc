//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports/compare"
)

// ofProgram makes a comparison of two runs with a program, and returns its folder.
func ofProgram(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	var subjects []compare.Subject
	for _, name := range []string{"bundled", "kube-proxy@v1.37.1/ipvs"} {
		o := recordtest.Rollout{Seed: 1, Fallback: true, Rollouts: 1}
		l := o.Lab()
		l.Run.ProgramSha256, l.Run.ControlPlane, l.Run.Kernel = program, "replay", record.Kernel{Kind: "vm", Release: "6.1.0", QEMU: "7.2.22"}
		folder := filepath.Base(name)
		subjects = append(subjects, compare.Subject{Subject: name, Runs: []compare.Run{comparedRun(t, dir, folder, o.Start(l))}})
		testfiles.Write(t, filepath.Join(dir, folder), record.HostFile, []byte(`{"started": "2026-11-27T15:23:43Z", "programs": [{"program": "kube-proxy@v1.37.1", "sha256": "ef"}]}`))
	}
	c, err := compare.New("rollout", subjects, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Command = "hitless compare rollout --subject bundled --subject kube-proxy@v1.37.1/ipvs --runs 1 --controlplane replay"
	if err := compare.Write(dir, c, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// keptComparison keeps a comparison of two runs with a program, and returns the folder of the kept file.
func keptComparison(t *testing.T, program string) string {
	t.Helper()
	dir, top := ofProgram(t, program), t.TempDir()
	if code, out, errs := executed("results", "keep", dir, filepath.Join(top, "new", "rollout.json")); code != exitPass || !strings.Contains(out, "rollout.json") || errs != "" {
		t.Fatalf("keeping: exit code %d\n%s%s", code, out, errs)
	}
	return top
}

// A file that is no result stays as it is, and one that is a result is replaced.
func TestOnlyResultsAreReplaced(t *testing.T) {
	own, err := version.OwnSum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, result := ofProgram(t, own), filepath.Join(keptComparison(t, own), "new", "rollout.json")
	notes := testfiles.Write(t, t.TempDir(), "notes.txt", []byte("precious"))
	if code, _, errs := executed("results", "keep", dir, notes); code != exitUsage || !strings.Contains(errs, notes) {
		t.Errorf("over notes: exit code %d: %s", code, errs)
	}
	if kept, err := os.ReadFile(notes); err != nil || string(kept) != "precious" {
		t.Errorf("the notes are %q: %v", kept, err)
	}
	if code, _, errs := executed("results", "keep", dir, result); code != exitPass {
		t.Errorf("over a result: exit code %d: %s", code, errs)
	}
}

// The exit code tells whether something is listed, and whether all was understood.
func TestCheckingResults(t *testing.T) {
	own, err := version.OwnSum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine, foreign := keptComparison(t, own), keptComparison(t, strings.Repeat("ab", 32))
	unknown := keptComparison(t, own)
	testfiles.Write(t, unknown, "notes.txt", []byte("x"))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{mine}, 0, "2 rows in 1 file: 2 from this program"},
		{[]string{filepath.Join(mine, "new", "rollout.json")}, 0, "2 rows in 1 file: 2 from this program"},
		{[]string{filepath.Join(foreign, "new", "rollout.json")}, 1, "rollout.json: all 2 rows of the program abababababab\n"},
		{[]string{foreign}, 1, "new/rollout.json: all 2 rows of the program abababababab\n"},
		{[]string{foreign, "-v"}, 1, "of the program abababababab: bundled seed 1; kube-proxy@v1.37.1/ipvs seed 1\n"},
		{[]string{unknown}, 2, "notes.txt"},
		{[]string{t.TempDir()}, 2, "has no results"},
		{[]string{filepath.Join(mine, "none")}, 2, "name the folder or the file that has them"},
		{[]string{mine, "--seed", "3"}, 2, "give --sample too"},
	} {
		code, out, errs := executed(append([]string{"results", "check"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("results check %q: exit code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
}

// A row whose command cannot run is listed with the reason that the command gives. Progress goes to standard error.
func TestARowThatCannotBeRepeatedIsListed(t *testing.T) {
	t.Setenv("HITLESS_CACHE", "/dev/null/cache")
	t.Setenv(asProgram, "1")
	own, err := version.OwnSum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs := executed("results", "check", keptComparison(t, own), "--sample", "9", "--out", filepath.Join(t.TempDir(), "out"))
	if code != 1 || strings.Count(out, "that cannot be repeated (exit status 2: hitless: making the cache") != 2 || !strings.Contains(errs, "row 2 of 2: new/rollout.json, ") || !strings.Contains(errs, "all rows end at about ") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

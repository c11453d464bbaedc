package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/shard"
)

// others are the make targets of the folders that `make evidence` does not make.
var others = map[string]string{"museum": "museum", "museum-subjects": "museum", "museum-tried": "museum-tried", "kills": "kill-score", "suites": "nightly",
	"nightly": "nightly", "upstream-e2e": "upstream-e2e-results", "upstream-rolling-update": "upstream-rolling-update"}

// Each script exists, and each folder of results is of a script, or of a make target of its own.
func TestEachResultHasAScript(t *testing.T) {
	t.Chdir("../..")
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for folder, target := range others {
		if !strings.Contains(string(makefile), "\n"+target+": ") {
			t.Errorf("no make target %s makes %s", target, folder)
		}
	}
	made, matched := map[string]bool{}, map[string]bool{}
	for _, s := range steps {
		if info, err := os.Stat(s.script); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s: %v", s.script, err)
		}
		for _, pattern := range s.patterns {
			files, err := filepath.Glob(filepath.Join(resultsDir, pattern))
			if err != nil || len(files) == 0 && s.name != "first-seed" { // which has not run yet
				t.Errorf("%s: no file is of %s: %v", s.name, pattern, err)
			}
			made[strings.Split(pattern, "/")[0]] = true
			for _, file := range files {
				matched[file] = true
			}
		}
	}
	entries, err := os.ReadDir(resultsDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !made[e.Name()] && others[e.Name()] == "" {
			t.Errorf("no script makes %s", e.Name())
		}
	}
	err = filepath.WalkDir(resultsDir, func(file string, e fs.DirEntry, err error) error {
		folder, _, deep := strings.Cut(strings.TrimPrefix(file, resultsDir+"/"), "/")
		if err == nil && !e.IsDir() && filepath.Ext(file) != ".md" && !matched[file] && (!deep || made[folder]) {
			t.Errorf("no step has %s: a row is missing in the plan", file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The plan has what is not of this program, and the shards divide it.
func TestThePlan(t *testing.T) {
	t.Chdir("../..")
	const sum = "0000000000000000000000000000000000000000000000000000000000000000"
	whole, err := planned(t.Context(), steps, shard.Shard{}, sum)
	if err != nil || len(whole) != len(steps) {
		t.Fatalf("%d of %d scripts, %v", len(whole), len(steps), err)
	}
	if !slices.IsSortedFunc(whole, func(a, b job) int { return cmp.Compare(b.left, a.left) }) {
		t.Error("the longest is not the first")
	}
	n := 0
	for _, part := range []shard.Shard{{Part: 1, Of: 2}, {Part: 2, Of: 2}} {
		work, err := planned(t.Context(), steps, part, sum)
		if err != nil {
			t.Fatal(err)
		}
		n += len(work)
	}
	if n != len(whole) {
		t.Errorf("two shards have %d scripts, want %d", n, len(whole))
	}
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if j, err := s.planned(t.Context(), ".", sum); err != nil || j.missing == 0 {
			t.Errorf("%s has not ended, and is not planned: %v", s.name, err)
		}
		if err := os.WriteFile(s.mark(sum), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if j, err := s.planned(t.Context(), ".", sum); err != nil || j.missing > 0 {
			t.Errorf("%s has ended, and is planned: %v", s.name, err)
		}
	}
}

// Steps are chosen by the names of the plan.
func TestChosenSteps(t *testing.T) {
	if some, err := chosen(steps, "kernels,upgrades"); err != nil || len(some) != 2 || some[0].name != "kernels" || some[1].name != "upgrades" {
		t.Errorf("%v, %v", some, err)
	}
	if all, err := chosen(steps, ""); err != nil || len(all) != len(steps) {
		t.Errorf("%d of %d steps, %v", len(all), len(steps), err)
	}
	if _, err := chosen(steps, "kernels,upgrade"); err == nil {
		t.Error("a step that does not exist was chosen")
	}
}

func TestTheExpectedEnd(t *testing.T) {
	now := time.Unix(0, 0)
	hours := func(all ...int) (work []job) {
		for _, h := range all {
			work = append(work, job{left: time.Duration(h) * time.Hour})
		}
		return work
	}
	for want, work := range map[int][]job{0: nil, 5: hours(5, 1), 6: hours(4, 3, 3, 2)} {
		if got := end(work, 2, now).Sub(now); got != time.Duration(want)*time.Hour {
			t.Errorf("%v: %s, want %d h", work, got, want)
		}
	}
	if got := end(hours(4, 3), 1, now).Sub(now); got != 7*time.Hour {
		t.Errorf("one at a time: %s, want 7 h", got)
	}
	for atOnce, want := range map[int]string{1: "1 script at a time", 2: "2 scripts at a time"} {
		var plan bytes.Buffer
		if printPlan(&plan, hours(1), atOnce, now); !strings.Contains(plan.String(), want) {
			t.Errorf("no %q in the plan:\n%s", want, plan.String())
		}
	}
}

// A script that fails does not stop the others and has not ended; an interrupt stops them. Each script that runs has CPUs of its own.
func TestScriptsRunBesideEachOther(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	const sum = "000000000000"
	var work []job
	for _, name := range []string{"a", "b", "c", "d"} {
		work = append(work, job{step: step{name: name, patterns: []string{name}}})
	}
	var mu sync.Mutex
	busy := map[string]bool{}
	var ran []string
	s := scripts{sum: sum, halves: []string{"0", "1"}, log: func(string) {}, now: time.Now}
	s.run = func(_ context.Context, st step, cpus string) error {
		mu.Lock()
		if busy[cpus] {
			t.Errorf("%s runs on the CPUs %s of another script", st.name, cpus)
		}
		busy[cpus] = true
		ran = append(ran, st.name)
		mu.Unlock()
		defer func() { mu.Lock(); busy[cpus] = false; mu.Unlock() }()
		if st.name == "b" {
			return errors.New("no")
		}
		return nil
	}
	if failed := s.all(t.Context(), work); !slices.Equal(failed, []string{"b"}) || len(ran) != 4 {
		t.Errorf("failed %v, ran %v", failed, ran)
	}
	for name, want := range map[string]int{"a": 0, "b": 1} {
		if j, err := (step{name: name}).planned(t.Context(), ".", sum); err != nil || j.missing != want {
			t.Errorf("%d runs of %s are planned (%v), want %d", j.missing, name, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran = nil
	one := scripts{sum: sum, halves: []string{"0"}, log: func(string) {}, now: time.Now, run: func(_ context.Context, st step, _ string) error {
		ran = append(ran, st.name)
		cancel()
		return nil
	}}
	if one.all(ctx, work); len(ran) != 1 {
		t.Errorf("after an interrupt %v ran", ran)
	}
}

// Merged shards are what one machine would have made. A step that is missing, was made twice, or is of another program is an error, and copies nothing.
func TestMergedShards(t *testing.T) {
	const sum = "000000000000"
	all := []step{{name: "a", patterns: []string{"a/*.lanes.txt"}}, {name: "b", patterns: []string{"b.lanes.txt"}}}
	tree := func(program string, made ...step) string {
		top := t.TempDir()
		for _, s := range made {
			for _, file := range []string{filepath.Join(resultsDir, strings.ReplaceAll(s.patterns[0], "*", "one")), s.mark(program)} {
				if err := errors.Join(os.MkdirAll(filepath.Join(top, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(top, file), []byte("a drawing has no rows"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return top
	}
	one, other, both := tree(sum, all[0]), tree(sum, all[1]), tree(sum, all...)
	foreign := tree("111111111111", all[1])
	for name, c := range map[string]struct {
		trees []string
		wants []string // in the error
	}{
		"two shards":     {[]string{one, other}, nil},
		"one machine":    {[]string{both}, nil},
		"missing":        {[]string{one}, []string{"b is missing"}},
		"twice":          {[]string{one, both}, []string{"a was made twice"}},
		"other programs": {[]string{one, foreign}, []string{"b is missing", foreign + " has nothing of the program"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			err := merge(t.Context(), all, c.trees, sum)
			for _, want := range c.wants {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			made, _ := os.ReadDir(".")
			if (err != nil) != (len(c.wants) > 0) || (len(made) > 0) != (err == nil) {
				t.Fatalf("%v; made %v", err, made)
			}
			for _, s := range all {
				if j, planErr := s.planned(t.Context(), ".", sum); planErr != nil || (j.missing == 0) != (err == nil) {
					t.Errorf("%s has %d files to be made: %v", s.name, j.missing, planErr)
				}
			}
		})
	}
}

// Jobs that differ by less than a second are in order too.
func TestThePlanIsInOrder(t *testing.T) {
	work := []job{{left: 1100 * time.Millisecond}, {left: 1900 * time.Millisecond}, {left: 2500 * time.Millisecond}, {left: 1200 * time.Millisecond}}
	longestFirst(work)
	if !slices.IsSortedFunc(work, func(a, b job) int { return cmp.Compare(b.left, a.left) }) {
		t.Errorf("%v", work)
	}
}

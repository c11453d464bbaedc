package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
)

const proxierPage = "../../docs/proxier.md"

// The page of the bundled proxier claims no zero that was not measured beside a loss.
func TestTheProxiersPageHasTheCommittedRuns(t *testing.T) {
	const results = "../../docs/results/zero-loss/*.json"
	holds(t, proxierPage, tableBegin("zero-loss"), tableOf(t, results, reports.WriteResults), tableEnd)
	rows, commands := zeroLossRows(t), map[string]string{}
	for _, file := range committed(t, results) {
		c, err := reports.ReadComparison(file)
		if err != nil {
			t.Fatal(err)
		}
		row := strings.TrimSuffix(filepath.Base(file), ".json")
		twin, known := rows[row]
		if !known {
			t.Errorf("%s: make zero-loss has no such row", file)
		}
		delete(rows, row)
		if other := commands[c.Command]; other != "" {
			t.Errorf("%s and %s are of one command: %s", file, other, c.Command)
		}
		commands[c.Command] = file
		if err := zeroBesideLosses(c, twin); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for row := range rows {
		t.Errorf("the row %s is missing: ROWS=%s make zero-loss", row, row)
	}
}

// zeroLossRows are the rows that make zero-loss runs unless it is told which, each with its twin: the last of its subjects.
func zeroLossRows(t *testing.T) map[string]string {
	t.Helper()
	script, err := os.ReadFile("../../hack/zero-loss.sh")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^compare ([a-z-]+) (?:"[^"]*/|exec:[^ ]*/)([a-z-]+)\.yaml`).FindAllSubmatch(script, -1) {
		rows[string(m[1])] = "exec:" + string(m[2])
	}
	all := regexp.MustCompile(`ROWS:-([a-z,-]+)}`).FindSubmatch(script)
	if all == nil {
		t.Fatal("the script has no list of its rows")
	}
	if names := strings.Split(string(all[1]), ","); len(names) != len(rows) || slices.ContainsFunc(names, func(row string) bool { return rows[row] == "" }) {
		t.Fatalf("the script lists the rows %s and has twins for %v", all[1], rows)
	}
	for _, row := range []string{"rollout", "flap", "busy", "restart", "kill", "upgrade", "api-away", "relist"} {
		if rows[row] == "" {
			t.Errorf("make zero-loss lacks the row %s", row)
		}
	}
	return rows
}

// zeroBesideLosses is nil when the bundled proxier lost nothing on eight seeds, on each of which its twin lost connections.
func zeroBesideLosses(c *reports.Comparison, twinOfRow string) error {
	const seeds = 8
	var errs []error
	seen := map[string]int{}
	for _, s := range c.Subjects {
		twin := s.Subject == twinOfRow
		seen[s.Subject]++
		tried := map[int64]bool{}
		for _, r := range s.Runs {
			tried[r.Seed] = true
		}
		if len(tried) < seeds || len(tried) != len(s.Runs) {
			errs = append(errs, fmt.Errorf("%s has %d runs of %d seeds, want one of each of %d", s.Subject, len(s.Runs), len(tried), seeds))
		}
		if first := c.Subjects[0].Runs; !slices.EqualFunc(first, s.Runs, func(a, b reports.ComparedRun) bool { return a.Seed == b.Seed }) {
			errs = append(errs, fmt.Errorf("%s has other seeds than %s", s.Subject, c.Subjects[0].Subject))
		}
		for _, r := range s.Runs {
			lost := r.Verdict == reports.Fail && r.Dropped > 0
			none := r.Verdict == reports.Pass && r.Dropped+r.Delayed == 0
			if (s.Subject == "bundled" && !none) || (twin && !lost) || r.Verdict == reports.Invalid {
				errs = append(errs, fmt.Errorf("%s with seed %d: %s, %d dropped, %d delayed", s.Subject, r.Seed, r.Verdict, r.Dropped, r.Delayed))
			}
		}
	}
	if seen["bundled"] != 1 || seen[twinOfRow] != 1 {
		errs = append(errs, fmt.Errorf("the subjects are %v, want bundled and %s once each", seen, twinOfRow))
	}
	return errors.Join(errs...)
}

func TestAZeroWithoutALossBesideItIsNone(t *testing.T) {
	row := func(change func(bundled, twin *reports.ComparedSubject)) *reports.Comparison {
		bundled, twin := reports.ComparedSubject{Subject: "bundled"}, reports.ComparedSubject{Subject: "exec:faulty"}
		for seed := range int64(8) {
			bundled.Runs = append(bundled.Runs, reports.ComparedRun{Seed: seed, Verdict: reports.Pass})
			twin.Runs = append(twin.Runs, reports.ComparedRun{Seed: seed, Verdict: reports.Fail, Dropped: 3})
		}
		change(&bundled, &twin)
		return &reports.Comparison{Subjects: []reports.ComparedSubject{bundled, twin}}
	}
	if err := zeroBesideLosses(row(func(_, _ *reports.ComparedSubject) {}), "exec:faulty"); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(bundled, twin *reports.ComparedSubject){
		"one dropped":         func(b, _ *reports.ComparedSubject) { b.Runs[3].Verdict, b.Runs[3].Dropped = reports.Fail, 1 },
		"one delayed":         func(b, _ *reports.ComparedSubject) { b.Runs[3].Delayed = 1 },
		"one invalid":         func(b, _ *reports.ComparedSubject) { b.Runs[3].Verdict = reports.Invalid },
		"seven seeds":         func(b, _ *reports.ComparedSubject) { b.Runs = b.Runs[1:] },
		"a twin without loss": func(_, w *reports.ComparedSubject) { w.Runs[7].Verdict, w.Runs[7].Dropped = reports.Pass, 0 },
		"an invalid twin":     func(_, w *reports.ComparedSubject) { w.Runs[7].Verdict = reports.Invalid },
		"no twin":             func(_, w *reports.ComparedSubject) { w.Subject = "kube-proxy@v1.37.1/ipvs" },
		"another twin":        func(_, w *reports.ComparedSubject) { w.Subject = "exec:other" },
		"no bundled proxier":  func(b, _ *reports.ComparedSubject) { b.Subject = "bundled-debug" },
		"a seed twice":        func(b, w *reports.ComparedSubject) { b.Runs[7].Seed, w.Runs[7].Seed = 6, 6 },
		"other seeds":         func(_, w *reports.ComparedSubject) { w.Runs[7].Seed = 9 },
		"a twin of six seeds": func(_, w *reports.ComparedSubject) { w.Runs = w.Runs[2:] },
	} {
		if zeroBesideLosses(row(change), "exec:faulty") == nil {
			t.Errorf("%s: nothing is wrong with it", name)
		}
	}
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports/compare"
)

// Each committed zero of the bundled proxier has a loss of its red twin in the same comparison, and the command is that of the script.
func TestZerosAreCommittedBesideLosses(t *testing.T) {
	files, err := committed(top, "zero-loss/*.json")
	if err != nil {
		t.Fatal(err)
	}
	rows := zeroLossRows(t)
	for _, file := range files {
		c, err := compare.Read(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		row, known := rows[name]
		if !known {
			t.Errorf("%s: make zero-loss has no such row", file)
			continue
		}
		delete(rows, name)
		wantCommand(t, file, row, c.Command)
		if err := zeroBesideLosses(c, row.names()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for row := range rows {
		t.Errorf("the row %s is missing: SUBSET=%s make zero-loss", row, row)
	}
}

// names returns the subjects as compare.json has them: exec:FILE without its folder and extension.
func (c comparison) names() (names []string) {
	for _, s := range c.Subjects {
		if file, is := strings.CutPrefix(s, "exec:"); is {
			s = "exec:" + strings.TrimSuffix(filepath.Base(file), ".yaml")
		}
		names = append(names, s)
	}
	return names
}

// zeroLossRows returns the comparisons that `make zero-loss` runs by default.
func zeroLossRows(t *testing.T) map[string]comparison {
	t.Helper()
	rows := scriptRows(t, "zero-loss.sh")
	for _, row := range []string{"rollout", "flap", "busy", "restart", "kill", "upgrade", "api-away", "relist"} {
		if rows[row].Scenario == "" {
			t.Errorf("make zero-loss lacks the row %s", row)
		}
	}
	return rows
}

// zeroBesideLosses returns nil if the comparison has these subjects, the bundled proxier lost nothing on eight seeds, and the last
// subject, its red twin, lost connections on each of them.
func zeroBesideLosses(c *compare.Comparison, subjects []string) error {
	const seeds = 8
	var errs []error
	var seen []string
	for _, s := range c.Subjects {
		twin := s.Subject == subjects[len(subjects)-1]
		seen = append(seen, s.Subject)
		tried := map[int64]bool{}
		for _, r := range s.Runs {
			tried[r.Seed] = true
		}
		if len(tried) < seeds || len(tried) != len(s.Runs) {
			errs = append(errs, fmt.Errorf("%s has %d runs of %d seeds, want one of each of %d", s.Subject, len(s.Runs), len(tried), seeds))
		}
		if first := c.Subjects[0].Runs; !slices.EqualFunc(first, s.Runs, func(a, b compare.Run) bool { return a.Seed == b.Seed }) {
			errs = append(errs, fmt.Errorf("%s has other seeds than %s", s.Subject, c.Subjects[0].Subject))
		}
		for _, r := range s.Runs {
			lost := r.Verdict == analysis.Fail && r.Dropped > 0
			none := r.Verdict == analysis.Pass && r.Dropped+r.Delayed == 0
			if (s.Subject == "bundled" && !none) || (twin && !lost) || r.Verdict == analysis.Invalid {
				errs = append(errs, fmt.Errorf("%s with seed %d: %s, %d dropped, %d delayed", s.Subject, r.Seed, r.Verdict, r.Dropped, r.Delayed))
			}
		}
	}
	if !slices.Equal(seen, subjects) || subjects[0] != "bundled" {
		errs = append(errs, fmt.Errorf("the subjects are %q, want %q, bundled first", seen, subjects))
	}
	return errors.Join(errs...)
}

func TestZeroNeedsLossOfRedTwin(t *testing.T) {
	row := func(change func(bundled, twin *compare.Subject)) *compare.Comparison {
		bundled, twin := compare.Subject{Subject: "bundled"}, compare.Subject{Subject: "exec:faulty"}
		for seed := range int64(8) {
			bundled.Runs = append(bundled.Runs, compare.Run{Seed: seed, Verdict: analysis.Pass})
			twin.Runs = append(twin.Runs, compare.Run{Seed: seed, Verdict: analysis.Fail, Dropped: 3})
		}
		change(&bundled, &twin)
		return &compare.Comparison{Subjects: []compare.Subject{bundled, twin}}
	}
	subjects := []string{"bundled", "exec:faulty"}
	if err := zeroBesideLosses(row(func(_, _ *compare.Subject) {}), subjects); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(bundled, twin *compare.Subject){
		"one dropped":         func(b, _ *compare.Subject) { b.Runs[3].Verdict, b.Runs[3].Dropped = analysis.Fail, 1 },
		"one delayed":         func(b, _ *compare.Subject) { b.Runs[3].Delayed = 1 },
		"one invalid":         func(b, _ *compare.Subject) { b.Runs[3].Verdict = analysis.Invalid },
		"seven seeds":         func(b, _ *compare.Subject) { b.Runs = b.Runs[1:] },
		"a twin without loss": func(_, w *compare.Subject) { w.Runs[7].Verdict, w.Runs[7].Dropped = analysis.Pass, 0 },
		"an invalid twin":     func(_, w *compare.Subject) { w.Runs[7].Verdict = analysis.Invalid },
		"no twin":             func(_, w *compare.Subject) { w.Subject = "kube-proxy@v1.37.1/ipvs" },
		"another twin":        func(_, w *compare.Subject) { w.Subject = "exec:other" },
		"no bundled proxier":  func(b, _ *compare.Subject) { b.Subject = "bundled-debug" },
		"a seed twice":        func(b, w *compare.Subject) { b.Runs[7].Seed, w.Runs[7].Seed = 6, 6 },
		"other seeds":         func(_, w *compare.Subject) { w.Runs[7].Seed = 9 },
		"a twin of six seeds": func(_, w *compare.Subject) { w.Runs = w.Runs[2:] },
	} {
		if zeroBesideLosses(row(change), subjects) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

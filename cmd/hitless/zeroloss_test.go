package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
)

const proxierPage = "../../docs/proxier.md"

// The page of the bundled proxier claims no zero that was not measured beside a loss.
func TestTheProxiersPageHasTheCommittedRuns(t *testing.T) {
	const results = "../../docs/results/zero-loss/*.json"
	holds(t, proxierPage, tableBegin("zero-loss"), tableOf(t, results, reports.WriteResults), tableEnd)
	for _, file := range committed(t, results) {
		c, err := reports.ReadComparison(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := zeroBesideLosses(c); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// zeroBesideLosses is nil when the bundled proxier lost nothing on eight seeds on which its twin lost connections each time.
func zeroBesideLosses(c *reports.Comparison) error {
	const seeds = 8
	var errs []error
	twins := 0
	for _, s := range c.Subjects {
		twin := strings.HasPrefix(s.Subject, "exec:")
		if twin {
			twins++
		}
		if len(s.Runs) < seeds {
			errs = append(errs, fmt.Errorf("%s has %d runs, want %d", s.Subject, len(s.Runs), seeds))
		}
		for _, r := range s.Runs {
			lost := r.Verdict == reports.Fail && r.Dropped > 0
			none := r.Verdict == reports.Pass && r.Dropped+r.Delayed == 0
			if (s.Subject == "bundled" && !none) || (twin && !lost) || r.Verdict == reports.Invalid {
				errs = append(errs, fmt.Errorf("%s with seed %d: %s, %d dropped, %d delayed", s.Subject, r.Seed, r.Verdict, r.Dropped, r.Delayed))
			}
		}
	}
	if twins != 1 {
		errs = append(errs, fmt.Errorf("%d twins, want one", twins))
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
	if err := zeroBesideLosses(row(func(_, _ *reports.ComparedSubject) {})); err != nil {
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
		"a twin of six seeds": func(_, w *reports.ComparedSubject) { w.Runs = w.Runs[2:] },
	} {
		if zeroBesideLosses(row(change)) == nil {
			t.Errorf("%s: nothing is wrong with it", name)
		}
	}
}

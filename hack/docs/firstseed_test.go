package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports/compare"
)

// hang is the cause of a loss by kubernetes#71071: a stale backend for minutes, and a node that fails the load balancer's check of its NodePort.
var hang = regexp.MustCompile(`kept [0-9.]+ in IPVS for [0-9]{3,}(–[0-9]{3,})? s after its process exited;.* failed its health checks`)

// hangsBesideZeros returns nil if the bundled proxier lost nothing on eight seeds and for a week in all, kube-proxy hung on each seed, and no two
// soaks are one.
func hangsBesideZeros(c *compare.Comparison) error {
	const seeds, week = 8, 7 * 24 * 3600 / 5 // a connection each 5 s
	var errs []error
	hung, connections, histories := 0, 0, map[string]bool{}
	for i, s := range c.Subjects {
		if len(s.Runs) != seeds {
			errs = append(errs, fmt.Errorf("%s has %d runs, want %d", s.Subject, len(s.Runs), seeds))
		}
		for _, r := range s.Runs {
			if histories[r.HistorySha256] {
				errs = append(errs, fmt.Errorf("%s with seed %d has the history of another run", s.Subject, r.Seed))
			}
			histories[r.HistorySha256] = true
			if i == 0 {
				connections += r.Attempts
			}
			switch {
			case r.Verdict == analysis.Invalid:
				errs = append(errs, fmt.Errorf("%s with seed %d is invalid", s.Subject, r.Seed))
			case i == 0 && (r.Verdict != analysis.Pass || r.Dropped+r.Delayed > 0):
				errs = append(errs, fmt.Errorf("%s with seed %d: %s, %d dropped, %d delayed", s.Subject, r.Seed, r.Verdict, r.Dropped, r.Delayed))
			case i == 1 && r.LongestOutage != nil && hang.MatchString(r.LongestOutage.Cause):
				hung++
			}
		}
	}
	if len(c.Subjects) != 2 || c.Subjects[0].Subject != "bundled" || c.Subjects[1].Subject != "kube-proxy@v1.12.2/ipvs" {
		errs = append(errs, errors.New("the subjects are not bundled and kube-proxy@v1.12.2/ipvs"))
	}
	if hung < seeds {
		errs = append(errs, fmt.Errorf("kube-proxy hung on %d of %d seeds", hung, seeds))
	}
	if connections < week {
		errs = append(errs, fmt.Errorf("the bundled proxier served %d connections, and a week has %d", connections, week))
	}
	return errors.Join(errs...)
}

func TestFirstSeedIsCommitted(t *testing.T) {
	c, err := compare.Read(t.Context(), filepath.Join(top, soakFile))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("runs only with a committed result of `make first-seed`, and the page says that there is none")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := hangsBesideZeros(c); err != nil {
		t.Error(err)
	}
}

func TestHangsNeedZeros(t *testing.T) {
	const cause = "node-2 kept 10.244.2.2 in IPVS for 153 s after its process exited; node-2 failed its health checks from +0:11:23.690 on"
	row := func(change func(bundled, old []compare.Run)) *compare.Comparison {
		var bundled, old []compare.Run
		for seed := range int64(8) {
			bundled = append(bundled, compare.Run{Seed: seed, Verdict: analysis.Pass, Attempts: 15_120, HistorySha256: fmt.Sprint("a", seed)})
			old = append(old, compare.Run{Seed: seed, Verdict: analysis.Fail, HistorySha256: fmt.Sprint("b", seed), LongestOutage: &compare.Outage{Cause: cause}})
		}
		change(bundled, old)
		return &compare.Comparison{Subjects: []compare.Subject{{Subject: "bundled", Runs: bundled}, {Subject: "kube-proxy@v1.12.2/ipvs", Runs: old}}}
	}
	if err := hangsBesideZeros(row(func(_, _ []compare.Run) {})); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(bundled, old []compare.Run){
		"one dropped":      func(b, _ []compare.Run) { b[3].Verdict, b[3].Dropped = analysis.Fail, 1 },
		"one invalid":      func(_, o []compare.Run) { o[3].Verdict = analysis.Invalid },
		"one run twice":    func(_, o []compare.Run) { o[4].HistorySha256 = o[3].HistorySha256 },
		"hangs on 7 seeds": func(_, o []compare.Run) { o[3].LongestOutage = &compare.Outage{Cause: "a pod exited"} },
		"an hour short":    func(b, _ []compare.Run) { b[3].Attempts -= 720 },
	} {
		if hangsBesideZeros(row(change)) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

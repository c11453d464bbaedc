package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/internal/units"
)

// step is a script that makes results, or one row of such a script.
type step struct {
	name, script string
	row          string   // for SUBSET; empty for all rows
	patterns     []string // of its files, below docs/results
	usual        time.Duration
}

// steps are all scripts that make committed results, but those of the museum and the kill score. The long scripts are split into their rows, so that
// two CPUs and shards end at about the same time. The usual times are of one CPU without KVM.
var steps = slices.Concat(
	rowsOf("zero-loss", "hack/zero-loss.sh", "zero-loss/%s.json", 20*time.Minute, "rollout", "flap", "restart", "kill", "upgrade", "api-away", "relist"),
	rowsOf("zero-loss", "hack/zero-loss.sh", "zero-loss/%s.json", 80*time.Minute, "busy"),
	conformanceSteps(),
	rowsOf("dataplanes", "hack/dataplanes.sh", "dataplanes/%s.json", 14*time.Minute, "policy", "flap", "restart", "rollout", "drain-scaledown"),
	[]step{
		{"first-seed", "hack/first-seed.sh", "", []string{"first-seed/*.json"}, 110 * time.Minute},
		{"bench-proxier", "hack/bench-proxier.sh", "", []string{"bench/*.json"}, 90 * time.Minute},
		{"minors", "hack/minors.sh", "", []string{"minors/*.json"}, 40 * time.Minute},
		{"disruptions", "hack/disruptions.sh", "", []string{"disruptions/*.json"}, 40 * time.Minute},
		{"verify-runs", "hack/verify.sh", "", []string{"verified/*.json"}, 25 * time.Minute},
		{"upgrades", "hack/upgrades.sh", "", []string{"upgrades/*.json"}, 45 * time.Minute},
		{"kernels", "hack/kernels.sh", "", []string{"kernels/*.json"}, 40 * time.Minute},
		{"results", "hack/results.sh", "", []string{"*.json", "*.lanes.txt", "picture/*.json"}, 30 * time.Minute},
	})

// chosen are the steps with these names, separated by commas; all if there is none.
func chosen(all []step, names string) (some []step, err error) {
	if names == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(s step) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no step is called %q; -plan lists them", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// rowsOf are steps for rows of a script. The pattern is that of their files.
func rowsOf(name, script, pattern string, usual time.Duration, rows ...string) (all []step) {
	for _, row := range rows {
		all = append(all, step{name + "-" + row, script, row, []string{fmt.Sprintf(pattern, row)}, usual})
	}
	return all
}

// conformanceSteps have one step for each subject, whose folder has no @ and /.
func conformanceSteps() (all []step) {
	for _, subject := range []string{"bundled", "kube-proxy@v1.37.1/iptables", "kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/nftables",
		"kube-proxy@v1.25.3/iptables", "kube-proxy@v1.25.3/ipvs", "kube-proxy@v1.12.5/ipvs", "cilium@1.15.19", "cilium@1.20.2"} {
		folder := strings.NewReplacer("@", "-", "/", "-").Replace(subject)
		all = append(all, step{"conformance-" + folder, "hack/conformance.sh", subject, []string{"conformance/" + folder + "/*.yaml"}, 25 * time.Minute})
	}
	return all
}

// job is a step with what is left of it.
type job struct {
	step
	files, missing int // missing are not of this program, or do not tell all
	left           time.Duration
}

// planned are the steps of a shard that have something to do, the longest first.
func planned(ctx context.Context, all []step, part shard.Shard, sum string) (work []job, err error) {
	for i, s := range all {
		if !part.Has(i) {
			continue
		}
		j, err := s.planned(ctx, ".", sum)
		if err != nil {
			return nil, err
		}
		if j.missing > 0 {
			work = append(work, j)
		}
	}
	longestFirst(work)
	return work, nil
}

func longestFirst(work []job) {
	slices.SortStableFunc(work, func(a, b job) int { return cmp.Compare(b.left, a.left) })
}

// planned says what is left of the step in a tree.
func (s step) planned(ctx context.Context, top, sum string) (job, error) {
	j := job{step: s}
	files, err := s.results(top)
	if err != nil {
		return j, err
	}
	for _, file := range files {
		checked, err := results.Check(ctx, file, sum)
		if err != nil {
			return j, err
		}
		j.files++
		if !checked.OK() {
			j.missing++
		}
	}
	// A script that has not ended well with this program may have more rows than files. It skips those that are made.
	j.files = max(j.files, 1)
	if _, err := os.Stat(filepath.Join(top, s.mark(sum))); errors.Is(err, os.ErrNotExist) {
		j.missing = max(j.missing, 1)
	}
	j.left = s.usual * time.Duration(j.missing) / time.Duration(j.files)
	return j, nil
}

// results are the files of the step in a tree.
func (s step) results(top string) (files []string, err error) {
	for _, pattern := range s.patterns {
		found, err := filepath.Glob(filepath.Join(top, resultsDir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// mark is the file that says that a step has ended well with a program. A script that changes has other rows.
func (s step) mark(sum string) string {
	script, _ := cache.Sha256(context.Background(), s.script) // one that cannot be read has none, and fails when it runs
	return filepath.Join(stateDir, fmt.Sprintf("%s-%s-%.8s", s.name, sum[:12], script))
}

// end is when jobs end that begin in order, some at a time.
func end(work []job, atOnce int, now time.Time) time.Time {
	free := slices.Repeat([]time.Time{now}, atOnce)
	for _, j := range work {
		slices.SortFunc(free, time.Time.Compare)
		free[0] = free[0].Add(j.left)
	}
	return slices.MaxFunc(free, time.Time.Compare)
}

func printPlan(w io.Writer, work []job, atOnce int, now time.Time) {
	if len(work) == 0 {
		fmt.Fprintln(w, "all results are of this program")
		return
	}
	fmt.Fprintf(w, "To be made, %s at a time:\n", units.Plural(atOnce, "script"))
	for _, j := range work {
		fmt.Fprintf(w, "  %-40s %d of %d files, about %s on one CPU\n", j.name, j.missing, j.files, j.left.Round(time.Minute))
	}
	fmt.Fprintf(w, "All end at about %s, as is usual on %s.\n", end(work, atOnce, now).Format("Mon 15:04"), units.Plural(atOnce, "CPU"))
}

// scripts runs jobs.
type scripts struct {
	sum    string
	halves []string // CPUs of the scripts that run at a time
	run    func(ctx context.Context, s step, cpus string) error
	log    func(line string)
	now    func() time.Time

	mu     sync.Mutex
	left   []job // that have not begun
	failed []string
}

// all runs the jobs, and returns the names of those that failed. A job that fails does not stop the others.
func (s *scripts) all(ctx context.Context, work []job) []string {
	s.left = slices.Clone(work)
	var wait sync.WaitGroup
	for _, cpus := range s.halves {
		wait.Go(func() {
			for ctx.Err() == nil {
				j, is := s.next()
				if !is {
					return
				}
				err := s.run(ctx, j.step, cpus)
				if err == nil {
					err = os.WriteFile(j.mark(s.sum), nil, 0o644)
				}
				s.ended(j, err)
			}
		})
	}
	wait.Wait()
	return s.failed
}

func (s *scripts) next() (j job, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 {
		return j, false
	}
	j, s.left = s.left[0], s.left[1:]
	s.log(fmt.Sprintf("%s begins; about %s, log %s", j.name, j.left.Round(time.Minute), filepath.Join(stateDir, j.name+".log")))
	return j, true
}

func (s *scripts) ended(j job, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := "ended"
	if err != nil {
		how, s.failed = fmt.Sprintf("failed (%v)", err), append(s.failed, j.name)
	}
	s.log(fmt.Sprintf("%s %s; what has not begun ends at about %s", j.name, how, end(s.left, len(s.halves), s.now()).Format("15:04")))
}

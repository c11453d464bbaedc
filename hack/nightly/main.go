// Command nightly keeps how the jobs of `make nightly` ended, in docs/results/nightly/jobs.json: hack/nightly.sh calls it after each job. With
// -merge it joins the jobs and results of shards, which were made in other trees. Exit codes: 0, 1 nothing was written, 2 wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/hack/trees"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/record"
)

const (
	program    = "bin/hitless"
	resultsDir = "docs/results"
	jobsFile   = resultsDir + "/" + results.JobsFile
)

func main() {
	var j results.Job
	flag.StringVar(&j.Name, "job", "", "name of a job that has ended")
	flag.IntVar(&j.ExitCode, "exit", 0, "its exit code")
	flag.IntVar(&j.Seconds, "seconds", 0, "its wall time")
	flag.StringVar(&j.Sources, "sources", "", "digest of the program and the sources")
	of := flag.Int("of", 0, "number of all jobs")
	merged := flag.String("merge", "", "join the jobs of shards from these `TREES`, separated by commas")
	flag.Parse()
	var err error
	switch {
	case *merged != "" && j.Name == "" && flag.NArg() > 0:
		err = merge(context.Background(), flag.Args(), strings.Split(*merged, ","))
	case *merged == "" && j.Name != "" && *of > 0 && flag.NArg() == 0:
		err = keep(context.Background(), j, *of)
	default:
		fmt.Fprintln(os.Stderr, "nightly: give -job NAME and -of NUMBER, or -merge TREES and the names of all jobs")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nightly:", err)
		os.Exit(1)
	}
}

// keep adds a job to those of this tree. Jobs of other sources are removed.
func keep(ctx context.Context, j results.Job, of int) (err error) {
	if j.Program, err = cache.Sha256(ctx, program); err != nil {
		return err
	}
	ask := exec.CommandContext(ctx, program, "build", "guest-tools")
	ask.Stderr = os.Stderr
	tools, err := ask.Output()
	if err != nil {
		return fmt.Errorf("asking for the lab's tools: %w", err)
	}
	_, digest, is := strings.Cut(string(tools), "\tsha256 ")
	if !is {
		return fmt.Errorf("asking for the lab's tools: %q has no digest", tools)
	}
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return err
	}
	j.Kernel = unix.ByteSliceToString(host.Release[:])
	begun := time.Now().Add(-time.Duration(j.Seconds) * time.Second)
	j.Made = record.Made{Started: begun.UTC().Format(time.RFC3339), Tools: strings.TrimSpace(digest)}
	all, err := results.ReadJobs(ctx, jobsFile)
	if err != nil {
		return err
	}
	all.Of = of
	all.Put(j)
	return all.Write(jobsFile)
}

// merge joins the jobs of shards, and copies the results of suites from the tree that made them. Each job must stand in one tree and in no other,
// and all must be of one program and one state of the sources; else nothing is copied.
func merge(ctx context.Context, names, from []string) error {
	joined := results.Jobs{Of: len(names)}
	var errs []error
	of := map[string][]string{}       // trees by job
	origins := map[[2]string]string{} // tree by program and sources
	for _, tree := range from {
		jobs, err := results.ReadJobs(ctx, filepath.Join(tree, jobsFile))
		if err != nil {
			return err
		}
		if len(jobs.Jobs) == 0 {
			errs = append(errs, fmt.Errorf("%s has no job: its shard has not run there", tree))
		}
		for _, j := range jobs.Jobs {
			joined.Put(j)
			of[j.Name], origins[[2]string{j.Program, j.Sources}] = append(of[j.Name], tree), tree
		}
	}
	if len(origins) > 1 {
		errs = append(errs, fmt.Errorf("the jobs are of %d programs or states of the sources: those of %s differ", len(origins),
			strings.Join(slices.Sorted(maps.Values(origins)), " and ")))
	}
	errs = append(errs, trees.Once(names, of, "of the shards")...)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("there is no job %s", name))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("nothing is merged: %w", errors.Join(errs...))
	}
	for _, j := range joined.Jobs {
		if err := copySuite(of[j.Name][0], j.Name); err != nil {
			return fmt.Errorf("merging %s: %w; the same command does it again", j.Name, err)
		}
	}
	return joined.Write(jobsFile)
}

// copySuite copies the results of a job that is a suite. Other jobs have none, and not each suite has.
func copySuite(tree, job string) error {
	suite, is := strings.CutPrefix(job, "suite-")
	if !is {
		return nil
	}
	err := trees.Copy(tree, resultsDir+"/suites/"+suite+".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

package results

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
)

// Jobs are the jobs of `make nightly` that have ended, sorted by name. All are of one state of the sources.
type Jobs struct {
	Of   int   `json:"of"` // number of all jobs, also of those that have not run
	Jobs []Job `json:"jobs"`
}

// JobsFile has the jobs, from the folder of results.
const JobsFile = "nightly/jobs.json"

// Job is how one job ended.
type Job struct {
	Name     string      `json:"job"`
	ExitCode int         `json:"exitCode"`
	Seconds  int         `json:"seconds"` // wall time
	Program  string      `json:"program"` // SHA-256 of hitless
	Sources  string      `json:"sources"` // digest of the program and all sources, of tests too
	Kernel   string      `json:"hostKernel"`
	Made     record.Made `json:"made"`
}

// ReadJobs reads a file of jobs. A missing file has none.
func ReadJobs(ctx context.Context, path string) (jobs Jobs, err error) {
	err = decode(ctx, path, &jobs)
	if errors.Is(err, fs.ErrNotExist) {
		return Jobs{}, nil
	}
	return jobs, err
}

// Put adds a job, or replaces that of the same name. Jobs of other sources are removed.
func (j *Jobs) Put(one Job) {
	j.Jobs = slices.DeleteFunc(j.Jobs, func(other Job) bool { return other.Name == one.Name || other.Sources != one.Sources })
	j.Jobs = append(j.Jobs, one)
	slices.SortFunc(j.Jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
}

// Write writes the file in one step.
func (j Jobs) Write(path string) error {
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the jobs of the nightly run: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return cache.WriteFile(path, append(data, '\n'))
}

// jobs are files of JobsFile: a row for each job.
var jobs = format{"jobs of a nightly run", func(_ string, k keys) bool { return k.has("jobs") }, readJobs}

func readJobs(ctx context.Context, path string) (rows []Row, err error) {
	all, err := ReadJobs(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, j := range all.Jobs {
		verdict, wrong := "passed", ""
		if j.ExitCode != 0 {
			verdict, wrong = "failed", fmt.Sprintf("that failed with exit code %d", j.ExitCode)
		}
		made := j.Made
		rows = append(rows, Row{Name: "the job " + j.Name, Subject: "several", Verdict: verdict, Wrong: wrong, Origin: Origin{j.Program, "host " + j.Kernel, "several", &made}})
	}
	return rows, nil
}
